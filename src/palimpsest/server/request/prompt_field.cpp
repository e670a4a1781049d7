#include "palimpsest/server/request/prompt_field.h"

#include <algorithm>
#include <limits>
#include <string>

#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {
namespace {

std::vector<TokenId> tokens_of(const std::string& text, const char* field, const ServedModel& model, bool continues) {
  if (continues) return model.vocabulary->tokenize(text, false, true);
  auto tokens = model.vocabulary->tokenize(text, true, true);
  if (tokens.empty() && model.vocabulary->bos() >= 0) tokens.push_back(model.vocabulary->bos());
  if (tokens.empty()) fail_field(field, "this model has no token to begin a text with: give a text in '{}'", field);
  return tokens;
}

TokenId read_token(const Json& id, const char* field) {
  if (!id.is_number_integer() || id.get<long long>() < 0 || id.get<long long>() > std::numeric_limits<TokenId>::max())
    fail_field(field, "'{}': {} is no token", field, id.dump(-1, ' ', true));
  return id.get<TokenId>();
}

std::vector<TokenId> read_parts(const Json& parts, const char* field, const ServedModel& model, bool continues) {
  std::vector<TokenId> tokens;
  for (const Json& part : parts) {
    if (!part.is_string()) {
      tokens.push_back(read_token(part, field));
      continue;
    }
    const auto more = model.vocabulary->tokenize(part.get<std::string>(), tokens.empty() && !continues, true);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  if (tokens.empty()) fail_field(field, "'{}': a list of tokens has none", field);
  return tokens;
}

// [{"type": "text", "text": "..."}, ...]: the texts in a row.
std::string joined(const Json& parts, const std::string& field) {
  if (!parts.is_array()) fail_field(field, "'{}' must be a list of parts of type text", field);
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    JsonFields part(parts[i], fmt::format("{}[{}].", field, i));
    if (part.text("type", "") != "text") fail_field(part.path("type"), "'{}' must be text", part.path("type"));
    out += part.text("text", "");
    part.end();
  }
  return out;
}

}  // namespace

bool is_list_of_prompts(const Json& prompts) {
  return prompts.is_array() && std::ranges::none_of(prompts, [](const Json& each) { return each.is_number(); });
}

std::vector<TokenId> read_prompt(const Json& prompt, const char* field, const ServedModel& model, bool continues) {
  if (prompt.is_string()) return tokens_of(prompt.get<std::string>(), field, model, continues);
  if (prompt.is_array()) return read_parts(prompt, field, model, continues);
  if (!prompt.is_object())
    fail_field(field, "'{}' must be a string, a list of tokens and strings, or a list of these", field);
  JsonFields fields(prompt, std::string(field) + ".");
  if (const Json* media = fields.take("multimodal_data"); media != nullptr && !media->empty())
    fail_field(fields.path("multimodal_data"), "'{}' is not supported", fields.path("multimodal_data"));
  std::string text = fields.text("prompt_string", "");
  if (const Json* content = fields.take("content")) text += joined(*content, fields.path("content"));
  fields.end();
  return tokens_of(text, field, model, continues);
}

}  // namespace palimpsest
