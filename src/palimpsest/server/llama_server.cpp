#include "palimpsest/server/llama_server.h"

#include <algorithm>

#include "palimpsest/server/fields.h"
#include "palimpsest/text/sampler_fields.h"

namespace palimpsest {
namespace {

// A text, a list of tokens, a list of both, or {"prompt_string": ...}.
Json one_prompt(const Json& prompt, const Vocabulary& vocabulary) {
  if (prompt.is_object()) {
    Fields fields(prompt, "prompt.");
    if (const Json* media = fields.take("multimodal_data"); media != nullptr && !media->empty())
      fail_field("prompt.multimodal_data", "'prompt.multimodal_data' is not supported");
    std::string text = fields.text("prompt_string", "");
    fields.end();
    return text;
  }
  const auto is_text = [](const Json& part) { return part.is_string(); };
  if (!prompt.is_array() || std::ranges::none_of(prompt, is_text)) return prompt;
  Json tokens = Json::array();
  for (const Json& part : prompt) {
    if (!part.is_string()) {
      tokens.push_back(part);
      continue;
    }
    for (const TokenId token : vocabulary.tokenize(part.get<std::string>(), tokens.empty(), true))
      tokens.push_back(token);
  }
  return tokens;
}

// A list that has a list or an object, or texts only, is a list of prompts.
Json prompts_of(const Json& prompt, const Vocabulary& vocabulary) {
  const bool several =
      prompt.is_array() && std::ranges::none_of(prompt, [](const Json& each) { return each.is_number(); });
  if (!several) return one_prompt(prompt, vocabulary);
  Json out = Json::array();
  for (const Json& each : prompt) out.push_back(one_prompt(each, vocabulary));
  return out;
}

std::vector<std::string> texts_of(const Json* list, const char* name) {
  std::vector<std::string> out;
  if (list == nullptr) return out;
  if (!list->is_array()) fail_field(name, "'{}' must be a list of texts", name);
  for (const Json& each : *list) {
    if (!each.is_string()) fail_field(name, "'{}' must be a list of texts", name);
    out.push_back(each.get<std::string>());
  }
  return out;
}

}  // namespace

LlamaRequest read_llama(const Json& body, const ServedModel& model) {
  Fields fields(body);
  LlamaRequest out{.body = Json::object(), .response_fields = {}};
  const Json* prompt = fields.take("prompt");
  if (prompt != nullptr) out.body["prompt"] = prompts_of(*prompt, *model.vocabulary);
  for (const char* name :
       {"model", "stream", "stop", "grammar", "seed", "logit_bias", "samplers", "dry_sequence_breakers", "min_tokens",
        "stop_token_ids", "ignore_eos", "cache_prompt", "cache", "session", "speculative", "n_predict", "max_tokens"})
    if (const Json* value = fields.take(name)) out.body[name] = *value;
  for (const SamplerField& field : sampler_fields())
    for (const char* name : {field.name, field.alias})
      if (name != nullptr)
        if (const Json* value = fields.take(name)) out.body[name] = *value;
  if (!out.body.contains("n_predict") && !out.body.contains("max_tokens"))
    out.body["n_predict"] = model.completion_max_tokens.value_or(-1);
  if (const long long top = fields.integer("n_probs", 0, 0, 20); top > 0) out.body["logprobs"] = top;
  if (const Json* count = fields.take("n_cmpl")) out.body["n"] = *count;
  if (const Json* schema = fields.take("json_schema"); schema != nullptr && !schema->empty())
    out.body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", *schema}}}};
  out.return_tokens = fields.boolean("return_tokens", false);
  out.response_fields = texts_of(fields.take("response_fields"), "response_fields");
  if (fields.boolean("post_sampling_probs", false))
    fail_field("post_sampling_probs",
               "'post_sampling_probs' is not supported: probabilities are those before sampling");
  if (const Json* lora = fields.take("lora"); lora != nullptr && !lora->empty())
    fail_field("lora", "'lora' is not supported in requests: give the server --lora");
  fields.ignore({"id_slot", "n_keep", "n_discard", "n_indent", "t_max_prompt_ms", "t_max_predict_ms",
                 "timings_per_token", "return_progress"});
  fields.end();
  return out;
}

}  // namespace palimpsest
