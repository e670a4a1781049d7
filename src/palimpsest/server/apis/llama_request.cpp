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

// All but the prompt.
LlamaRequest read_answer(JsonFields& fields, const ServedModel& model) {
  LlamaRequest out{.input = CompletionInput(model)};
  CompletionInput& input = out.input;
  CompletionRequest& request = input.request;
  input.names.count = "n_cmpl";
  check_model(fields.text("model", model.name), model);
  request.stream = fields.boolean("stream", false);
  request.n = static_cast<int>(fields.integer("n_cmpl", 1, 1, kMaxChoices));
  request.tokens = true;
  read_stop(fields, "stop", request.stop);
  long long& limit = request.request.max_tokens;
  limit = model.completion_max_tokens.value_or(-1);
  for (const char* name : {"max_tokens", "n_predict"}) {
    if (fields.take(name) != nullptr) input.names.limit = name;
    limit = fields.integer(name, limit, -1, kMaxAnswerTokens);
  }
  request.request.ignore_end = fields.boolean("ignore_eos", false);
  if (const long long top = fields.integer("n_probs", 0, 0, 20); top > 0)
    request.request.top_logprobs = static_cast<int>(top);
  input.has_seed = fields.take("seed") != nullptr;
  read_sampling(fields, *model.vocabulary, request.request.sampler);
  read_grammar(fields, input.output);
  if (const Json* schema = fields.take("json_schema"); schema != nullptr && !schema->empty()) {
    if (!input.output.grammar.empty())
      fields.refuse("grammar", "and 'json_schema' exclude each other: leave one of them out");
    read_schema(*schema, "json_schema", true, input.output);
  }
  read_cache_fields(fields, model, input);
  out.return_tokens = fields.boolean("return_tokens", false);
  out.response_fields = fields.texts("response_fields");
  if (fields.boolean("post_sampling_probs", false))
    fields.refuse("post_sampling_probs", "is not supported: probabilities are those before sampling");
  if (const Json* lora = fields.take("lora"); lora != nullptr && !lora->empty())
    fields.refuse("lora", "is not supported in requests: give the server --lora");
  fields.ignore({"id_slot", "n_keep", "n_discard", "n_indent", "t_max_prompt_ms", "t_max_predict_ms"});
  read_stream_reports(fields, request);
  return out;
}

// [{"filename": "a.py", "text": "..."}, ...]
std::vector<std::pair<std::string, std::string>> read_files(JsonFields& fields) {
  std::vector<std::pair<std::string, std::string>> out;
  fields.list("input_extra", [&](JsonFields& file) {
    file.need("text");
    out.emplace_back(file.text("filename", "file"), file.text("text", ""));
  });
  return out;
}

}  // namespace

LlamaRequest read_llama(const Json& body, const ServedModel& model) {
  JsonFields fields(body);
  LlamaRequest out = read_answer(fields, model);
  CompletionRequest& request = out.input.request;
  const bool continues = !request.restore.empty();
  const Json none = "";
  const Json& given = continues && fields.take("prompt") == nullptr ? none : fields.need("prompt");
  fields.end();
  const auto prompts = list_prompts(fields, "prompt", given);
  check_choices(prompts.size(), request.n, "n_cmpl");
  for (const auto& [path, prompt] : prompts) request.prompts.emplace_back(read_prompt(*prompt, path, model, continues));
  return out;
}

LlamaRequest read_infill(const Json& body, const ServedModel& model) {
  if (const auto missing = missing_infill_tokens(*model.vocabulary); !missing.empty())
    throw ApiError(501, "not_supported_error",
                   fmt::format("infill is not supported by this model: its vocabulary has no token for: {}",
                               fmt::join(missing, ", ")));
  JsonFields fields(body);
  LlamaRequest out = read_answer(fields, model);
  fields.need("input_prefix"), fields.need("input_suffix");
  out.input.request.prompts.emplace_back(infill_prompt(*model.vocabulary, {.prefix = fields.text("input_prefix", ""),
                                                                           .suffix = fields.text("input_suffix", ""),
                                                                           .begun = fields.text("prompt", ""),
                                                                           .files = read_files(fields)}));
  fields.end();
  return out;
}

}  // namespace palimpsest
