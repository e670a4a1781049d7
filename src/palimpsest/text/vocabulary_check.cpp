#include "palimpsest/text/vocabulary_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/core/gguf_file.h"

namespace palimpsest {
namespace {

constexpr std::int64_t kByteToken = 6;  // tokenizer.ggml.token_type
using Texts = std::unordered_set<std::string_view>;

// libllama reads tokens as C strings, up to the first zero byte.
std::string_view as_c_string(std::string_view text) {
  return text.substr(0, text.find('\0'));
}

bool is_byte_text(std::string_view text) {
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && hex(text[3]) && hex(text[4]) && text[5] == '>';
}

Texts check_tokens(const GgufFile& file, const std::vector<std::string_view>& tokens) {
  Texts texts;
  texts.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto text = as_c_string(tokens[i]);
    if (text.starts_with("[EMPTY_"))  // libllama's name for empty tokens
      fail("{}: token {} is named \"{}\", which is reserved: convert the model again", file.path(), i, printable(text));
    if (!text.empty() && !texts.insert(text).second)
      fail("{}: token {} (\"{}\") is there twice: convert the model again", file.path(), i, printable(text));
  }
  return texts;
}

void check_bytes(const GgufFile& file, const Texts& texts) {
  for (int byte = 0; byte < 256; ++byte) {
    const char raw = static_cast<char>(byte);
    const std::string escaped = fmt::format("<0x{:02X}>", byte);
    if (!texts.contains(escaped) && !texts.contains(std::string_view(&raw, 1)))
      fail("{}: the vocabulary has no token for the byte {}: convert the model again", file.path(), escaped);
  }
}

void check_types(const GgufFile& file, const std::vector<std::string_view>& tokens, bool sentencepiece) {
  const auto types = file.integers("tokenizer.ggml.token_type");
  if (!types) return;
  if (types->size() != tokens.size())
    fail("{}: tokenizer.ggml.token_type has {} entries for {} tokens: convert the model again", file.path(),
         types->size(), tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if ((*types)[i] == kByteToken && !(sentencepiece && is_byte_text(as_c_string(tokens[i]))))
      fail("{}: token {} (\"{}\") is said to be a byte and is not: convert the model again", file.path(), i,
           printable(tokens[i]));
}

// Special tokens missing in the file default to those of Llama, GPT-2, BERT and T5 in libllama. Without them it aborts.
void check_special_tokens(const GgufFile& file, std::string_view model, std::size_t count) {
  std::size_t min = model == "gpt2" ? 12 : 3;
  if (model == "bert")
    for (const auto& [name, id] : {std::pair("mask", 103), {"seperator", 102}, {"bos", 101}, {"unknown", 100}})
      if (!file.has(fmt::format("tokenizer.ggml.{}_token_id", name))) min = std::max<std::size_t>(min, id + 1);
  if (model == "t5" && file.boolean("tokenizer.ggml.add_bos_token").value_or(false) &&
      !file.has("tokenizer.ggml.bos_token_id"))
    fail("{}: tokenizer.ggml.bos_token_id is missing: convert the model again", file.path());
  if (count < min)
    fail("{}: the vocabulary has {} tokens, fewer than {}: convert the model again", file.path(), count, min);
  for (const std::string_view key : file.keys()) {
    if (!key.starts_with("tokenizer.ggml.") || !key.ends_with("_token_id")) continue;
    const std::int64_t id = *file.integer(key);
    if (id < 0 || id >= static_cast<std::int64_t>(count))
      fail("{}: {} is {}, but there are {} tokens: convert the model again", file.path(), key, id, count);
  }
}

// The size of a table, then the table, then the texts that replace what it finds.
void check_character_map(const GgufFile& file) {
  constexpr const char* kMap = "tokenizer.ggml.precompiled_charsmap";
  const auto bytes = file.integers(kMap);
  if (!bytes) return;
  std::size_t table = 0;
  for (std::size_t i = 0; i < 4 && i < bytes->size(); ++i)
    table |= static_cast<std::size_t>((*bytes)[i] & 255) << (8 * i);
  if (bytes->size() < 4 || table + 4 >= bytes->size() || (bytes->back() & 255) != 0)
    fail("{}: {} is damaged: convert the model again", file.path(), kMap);
}

}  // namespace

void check_vocabulary(const std::string& path, std::span<const GgufOverride> overrides) {
  GgufFile file = GgufFile::open(path);
  for (const GgufOverride& given : overrides) file.override_value(given);
  const auto model = file.text("tokenizer.ggml.model");
  if (!model || *model == "no_vocab" || *model == "none")
    fail("{}: has no vocabulary (tokenizer.ggml.model): convert the model together with its tokenizer", path);
  constexpr std::string_view kSupported[] = {"llama", "gpt2", "bert", "t5", "gemma4"};
  if (std::ranges::find(kSupported, *model) == std::end(kSupported))
    fail("{}: tokenizer \"{}\" is not supported; {} are: use another model", path, printable(*model),
         fmt::join(kSupported, ", "));
  // gemma4: byte pairs with SentencePiece's spaces and bytes.
  const bool sentencepiece = *model == "llama" || *model == "gemma4";

  const auto tokens = file.texts("tokenizer.ggml.tokens").value_or(std::vector<std::string_view>{});
  if (tokens.empty()) fail("{}: tokenizer.ggml.tokens is missing or empty: convert the model again", path);
  check_special_tokens(file, *model, tokens.size());
  const Texts texts = check_tokens(file, tokens);
  if (sentencepiece) check_bytes(file, texts);
  check_types(file, tokens, sentencepiece || *model == "t5");
  if (file.has("tokenizer.ggml.scores") && file.array_size("tokenizer.ggml.scores") != tokens.size())
    fail("{}: tokenizer.ggml.scores has {} entries for {} tokens: convert the model again", path,
         file.array_size("tokenizer.ggml.scores"), tokens.size());
  check_character_map(file);
  file.texts("tokenizer.ggml.merges");  // strings, if present
}

}  // namespace palimpsest
