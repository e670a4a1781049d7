// A metadata value given by the user instead of a file's: KEY=TYPE:VALUE, as in llama.cpp's --override-kv.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace palimpsest {

struct GgufOverride {
  std::string key;
  std::variant<std::int64_t, double, bool, std::string> value;
};

// "tokenizer.ggml.add_bos_token=bool:false"; types int, float, bool, str. A key, and a text, has at most 127 bytes
// (libllama's limit). Throws Error.
GgufOverride parse_override(std::string_view text);

}  // namespace palimpsest
