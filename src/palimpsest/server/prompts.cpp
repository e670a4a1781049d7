#include "palimpsest/server/prompts.h"

#include <limits>
#include <string>

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

std::vector<TokenId> tokens_of(const Json& ids, const char* field) {
  std::vector<TokenId> tokens;
  for (const Json& id : ids) {
    if (!id.is_number_integer() || id.get<long long>() < 0 || id.get<long long>() > std::numeric_limits<TokenId>::max())
      fail_field(field, "'{}': {} is no token", field, id.dump());
    tokens.push_back(id.get<TokenId>());
  }
  if (tokens.empty()) fail_field(field, "'{}': a list of tokens has none", field);
  return tokens;
}

}  // namespace

std::vector<TokenId> read_prompt(const Json& prompt, const char* field, const ServedModel& model, bool continues) {
  if (prompt.is_string()) return tokens_of(prompt.get<std::string>(), field, model, continues);
  if (prompt.is_array()) return tokens_of(prompt, field);
  fail_field(field, "'{}' must be a string, a list of strings, or a list of tokens", field);
}

}  // namespace palimpsest
