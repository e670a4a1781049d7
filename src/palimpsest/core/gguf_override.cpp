#include "palimpsest/core/gguf_override.h"

#include <cfloat>
#include <climits>

#include "palimpsest/core/error.h"
#include "palimpsest/core/gguf_file.h"
#include "palimpsest/core/parse.h"

namespace palimpsest {

GgufOverride parse_override(std::string_view text) {
  constexpr std::size_t kMax = 127;
  const std::size_t equals = text.find('='), colon = text.find(':', equals == std::string_view::npos ? 0 : equals);
  if (equals == std::string_view::npos || colon == std::string_view::npos || equals == 0)
    fail("override \"{}\": give KEY=TYPE:VALUE, as in tokenizer.ggml.add_bos_token=bool:false", printable(text));
  const std::string_view type = text.substr(equals + 1, colon - equals - 1), value = text.substr(colon + 1);
  GgufOverride out{.key = std::string(text.substr(0, equals)), .value = {}};
  if (out.key.size() > kMax || (type == "str" && value.size() > kMax))
    fail("override \"{}\": a key and a text have at most {} bytes", printable(text), kMax);
  const std::string what = "override of " + printable(out.key);
  if (type == "int")
    out.value = static_cast<std::int64_t>(parse_integer(value, what, LLONG_MIN, LLONG_MAX));
  else if (type == "float")
    out.value = parse_real(value, what, -DBL_MAX, DBL_MAX);
  else if (type == "bool" && (value == "true" || value == "false"))
    out.value = value == "true";
  else if (type == "str")
    out.value = std::string(value);
  else
    fail("override \"{}\": the types are int, float, bool (true or false) and str", printable(text));
  return out;
}

void GgufFile::override_value(const GgufOverride& given) {
  const auto keep = [&](gguf_type type, const void* data, std::size_t bytes) {
    auto copy = std::make_shared<std::vector<std::byte>>(static_cast<const std::byte*>(data),
                                                         static_cast<const std::byte*>(data) + bytes);
    values_[given.key] = {.type = type, .data = copy->data(), .length = bytes};
    kept_.push_back(std::move(copy));
  };
  if (const auto* whole = std::get_if<std::int64_t>(&given.value)) keep(GGUF_TYPE_INT64, whole, sizeof *whole);
  if (const auto* number = std::get_if<double>(&given.value)) keep(GGUF_TYPE_FLOAT64, number, sizeof *number);
  if (const auto* flag = std::get_if<bool>(&given.value)) keep(GGUF_TYPE_BOOL, flag, sizeof *flag);
  if (const auto* text = std::get_if<std::string>(&given.value)) keep(GGUF_TYPE_STRING, text->data(), text->size());
}

}  // namespace palimpsest
