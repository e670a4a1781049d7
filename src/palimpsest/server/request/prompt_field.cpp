#include "palimpsest/server/request/prompt_field.h"

#include <algorithm>
#include <limits>
#include <string>

#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/text/encoder_text.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {
namespace {

std::vector<TokenId> tokens_of(const std::string& text, const std::string& field, const ServedModel& model,
                               bool continues) {
  if (continues) return model.vocabulary->tokenize(text, false, true);
  auto tokens = model.encodes ? encoder_tokens(*model.vocabulary, text) : model.vocabulary->tokenize(text, true, true);
  if (tokens.empty() && model.vocabulary->bos() >= 0) tokens.push_back(model.vocabulary->bos());
  if (tokens.empty()) fail_field(field, "this model has no token to begin a text with: give a text in '{}'", field);
  return tokens;
}

TokenId read_token(const Json& id, const std::string& field) {
  if (!id.is_number_integer() || id.get<long long>() < 0 || id.get<long long>() > std::numeric_limits<TokenId>::max())
    fail_field(field, "'{}': {} is no token", field, id.dump(-1, ' ', true));
  return id.get<TokenId>();
}

std::vector<TokenId> read_parts(const Json& parts, const std::string& field, const ServedModel& model, bool continues) {
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
std::string joined_parts(JsonFields& fields) {
  std::string out;
  fields.list("content", [&](JsonFields& part) {
    if (part.text("type", "") != "text") part.refuse("type", "must be text");
    out += part.text("text", "");
  });
  return out;
}

}  // namespace

std::vector<std::pair<std::string, const Json*>> list_prompts(const JsonFields& fields, const char* name,
                                                              const Json& prompts) {
  // With a number it is one prompt.
  if (!prompts.is_array() || std::ranges::any_of(prompts, [](const Json& each) { return each.is_number(); }))
    return {{fields.path(name), &prompts}};
  if (prompts.empty()) fields.refuse(name, "is an empty list");
  std::vector<std::pair<std::string, const Json*>> out;
  for (const Json& each : prompts) out.emplace_back(fmt::format("{}[{}]", fields.path(name), out.size()), &each);
  return out;
}

std::vector<TokenId> read_prompt(const Json& prompt, const std::string& field, const ServedModel& model,
                                 bool continues) {
  if (prompt.is_string()) return tokens_of(prompt.get<std::string>(), field, model, continues);
  if (prompt.is_array()) return read_parts(prompt, field, model, continues);
  if (!prompt.is_object())
    fail_field(field, "'{}' must be a string, a list of tokens and strings, or a list of these", field);
  JsonFields fields(prompt, field + ".");
  if (const Json* media = fields.take("multimodal_data"); media != nullptr && !media->empty())
    fields.refuse("multimodal_data", "is not supported");
  const std::string text = fields.text("prompt_string", "") + joined_parts(fields);
  fields.end();
  return tokens_of(text, field, model, continues);
}

}  // namespace palimpsest
