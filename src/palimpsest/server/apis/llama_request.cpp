#include "palimpsest/server/apis/llama_request.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "palimpsest/server/request/common_fields.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/request/prompt_field.h"
#include "palimpsest/server/request/sampling_fields.h"
#include "palimpsest/text/infill.h"

namespace palimpsest {
namespace {

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

// All but the prompt.
LlamaRequest read_answer(JsonFields& fields, const ServedModel& model) {
  LlamaRequest out{.input = CompletionInput(model)};
  CompletionInput& input = out.input;
  CompletionRequest& request = input.request;
  input.limit_field = "n_predict";
  check_model(fields.text("model", model.name), model);
  request.stream = fields.boolean("stream", false);
  request.n = static_cast<int>(fields.integer("n_cmpl", 1, 1, kMaxChoices));
  request.tokens = true;
  read_stop(fields.take("stop"), "stop", request.stop);
  for (const char* name : {"max_tokens", "n_predict"})
    request.request.max_tokens = fields.integer(
        name,
        name == std::string_view("max_tokens") ? model.completion_max_tokens.value_or(-1) : request.request.max_tokens,
        -1, kMaxAnswerTokens);
  request.request.ignore_end = fields.boolean("ignore_eos", false);
  if (const long long top = fields.integer("n_probs", 0, 0, 20); top > 0)
    request.request.top_logprobs = static_cast<int>(top);
  input.has_seed = fields.take("seed") != nullptr;
  read_sampling(fields, *model.vocabulary, request.request.sampler);
  input.output.grammar = fields.text("grammar", "");
  if (!input.output.grammar.empty()) input.output.field = "grammar";
  if (const Json* schema = fields.take("json_schema"); schema != nullptr && !schema->empty()) {
    if (!input.output.grammar.empty())
      fail_field("grammar", "'grammar' and 'json_schema' exclude each other: leave one of them out");
    input.output.field = "json_schema";
    read_schema(*schema, "json_schema", true, input.output);
  }
  read_cache_fields(fields, model, input);
  out.return_tokens = fields.boolean("return_tokens", false);
  out.response_fields = texts_of(fields.take("response_fields"), "response_fields");
  if (fields.boolean("post_sampling_probs", false))
    fail_field("post_sampling_probs",
               "'post_sampling_probs' is not supported: probabilities are those before sampling");
  if (const Json* lora = fields.take("lora"); lora != nullptr && !lora->empty())
    fail_field("lora", "'lora' is not supported in requests: give the server --lora");
  fields.ignore({"id_slot", "n_keep", "n_discard", "n_indent", "t_max_prompt_ms", "t_max_predict_ms"});
  read_stream_reports(fields, request);
  return out;
}

// [{"filename": "a.py", "text": "..."}, ...]
std::vector<std::pair<std::string, std::string>> files_of(const Json* list) {
  std::vector<std::pair<std::string, std::string>> out;
  if (list == nullptr) return out;
  if (!list->is_array()) fail_field("input_extra", "'input_extra' must be a list of {{\"filename\", \"text\"}}");
  for (std::size_t i = 0; i < list->size(); ++i) {
    JsonFields file((*list)[i], fmt::format("input_extra[{}].", i));
    if (file.take("text") == nullptr) fail_field(file.path("text"), "'{}' is missing", file.path("text"));
    out.emplace_back(file.text("filename", "file"), file.text("text", ""));
    file.end();
  }
  return out;
}

}  // namespace

LlamaRequest read_llama(const Json& body, const ServedModel& model) {
  JsonFields fields(body);
  LlamaRequest out = read_answer(fields, model);
  CompletionRequest& request = out.input.request;
  const Json* given = fields.take("prompt");
  fields.end();
  const bool continues = !request.restore.empty();
  if (given == nullptr && !continues) fail_field("prompt", "'prompt' is missing");
  const Json prompt = given == nullptr ? Json("") : *given;
  if (!is_list_of_prompts(prompt)) {
    request.prompts.emplace_back(read_prompt(prompt, "prompt", model, continues));
    return out;
  }
  if (prompt.empty()) fail_field("prompt", "'prompt' is an empty list");
  check_choices(prompt.size(), request.n);
  for (const Json& each : prompt) request.prompts.emplace_back(read_prompt(each, "prompt", model, continues));
  return out;
}

LlamaRequest read_infill(const Json& body, const ServedModel& model) {
  if (const auto missing = missing_infill_tokens(*model.vocabulary); !missing.empty())
    throw ApiError(501, "not_supported_error",
                   fmt::format("infill is not supported by this model: its vocabulary has no token for: {}",
                               fmt::join(missing, ", ")));
  JsonFields fields(body);
  LlamaRequest out = read_answer(fields, model);
  for (const char* name : {"input_prefix", "input_suffix"})
    if (fields.take(name) == nullptr) fail_field(name, "'{}' is missing", name);
  out.input.request.prompts.emplace_back(
      infill_prompt(*model.vocabulary, {.prefix = fields.text("input_prefix", ""),
                                        .suffix = fields.text("input_suffix", ""),
                                        .begun = fields.text("prompt", ""),
                                        .files = files_of(fields.take("input_extra"))}));
  fields.end();
  return out;
}

}  // namespace palimpsest
