#include "palimpsest/server/apis/openai_request.h"

#include <optional>
#include <string>

#include "palimpsest/server/apis/openai_chat.h"
#include "palimpsest/server/request/common_fields.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/request/prompt_field.h"
#include "palimpsest/server/request/sampling_fields.h"

namespace palimpsest {
namespace {

constexpr std::size_t kMaxEcho = std::size_t{8} << 20;  // bytes of prompts in an answer

void read_prompts(const Json* prompt, bool echo, const ServedModel& model, CompletionRequest& out) {
  const auto add = [&](const Json& one) {
    out.prompts.push_back(read_prompt(one, "prompt", model, !out.restore.empty()));
    if (echo)
      out.echo.push_back(one.is_string() ? one.get<std::string>() : model.vocabulary->detokenize(out.prompts.back()));
  };
  if (prompt == nullptr && !out.restore.empty()) return add("");
  if (prompt == nullptr) fail_field("prompt", "'prompt' is missing");
  if (!is_list_of_prompts(*prompt)) return add(*prompt);
  if (prompt->empty()) fail_field("prompt", "'prompt' is an empty list");
  check_choices(prompt->size(), out.n);
  for (const Json& one : *prompt) add(one);
}

// Each answer returns its prompt.
void check_echo(const CompletionRequest& request) {
  std::size_t bytes = 0;
  for (const std::string& text : request.echo) bytes += text.size() * static_cast<std::size_t>(request.n);
  if (bytes > kMaxEcho)
    fail_field("echo", "'echo' with {} answers to each prompt would return {} bytes of prompts: at most {}", request.n,
               bytes, kMaxEcho);
}

// Prompts with log probabilities are read token by token, as texts are.
void check_echo_logs(const CompletionRequest& request) {
  if (!request.echo_logs) {
    if (request.request.max_tokens == 0) fail_field("max_tokens", "'max_tokens' 0 needs 'echo' and 'logprobs'");
    return;
  }
  const auto excludes = [](bool other, const char* name) {
    if (other) fail_field(name, "'{}' with 'echo' and 'logprobs' is not supported: leave one of them out", name);
  };
  excludes(!request.stop.empty(), "stop");
  excludes(!request.restore.empty(), "session");
  excludes(request.request.drafts.max > 0, "speculative");
  for (const SharedTokens& prompt : request.prompts)
    if (prompt.size() < 2 && request.request.max_tokens == 0)
      fail_field("max_tokens", "'max_tokens' is 0, and a prompt of one token has no log probabilities");
}

void read_logprobs(JsonFields& fields, bool chat, Request& out) {
  if (!chat) {
    out.top_logprobs = static_cast<int>(fields.integer("logprobs", -1, 0, 20));
    return;
  }
  const bool wanted = fields.boolean("logprobs", false);
  const bool counted = fields.take("top_logprobs") != nullptr;
  if (counted && !wanted) fail_field("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  const auto top = static_cast<int>(fields.integer("top_logprobs", 0, 0, 20));
  if (wanted) out.top_logprobs = top;
}

// `max_tokens` and its other names. -1: as many as fit into the trained context, see until_context().
long long read_limit(JsonFields& fields, bool chat, const ServedModel& model) {
  std::optional<long long> limit;
  for (const char* name : {"max_completion_tokens", "max_tokens", "n_predict"}) {
    if (fields.take(name) == nullptr) continue;
    const long long given = fields.integer(name, 0, -1, kMaxAnswerTokens);
    if (chat && given == 0) fail_field(name, "'{}' must be at least 1 (-1: up to the trained context)", name);
    if (limit && *limit != given)
      fail_field(name, "'{}' has another name in this request, with another value: give one", name);
    limit = given;
  }
  return limit.value_or(chat ? model.default_max_tokens : model.completion_max_tokens.value_or(16));
}

// Hints that change no answer, and fields that may only have their default.
void read_hints(JsonFields& fields) {
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_retention", "id_slot", "priority", "request_id", "verbosity", "prediction",
                 "skip_special_tokens", "spaces_between_special_tokens", "include_reasoning", "stream_include_usage"});
  const auto only = [&](const char* name, const Json& value) {
    const Json* given = fields.take(name);
    if (given != nullptr && *given != value) fail_field(name, "'{}' may only be {}", name, value.dump());
  };
  only("modalities", Json::array({"text"}));
  only("best_of", 1);
  only("suffix", "");
  only("use_beam_search", false);
  only("length_penalty", 1);
}

}  // namespace

CompletionInput read_openai(const Json& body, bool chat, const ServedModel& model) {
  CompletionInput input(model);
  if (chat) input.chat.emplace();
  CompletionRequest& out = input.request;
  JsonFields fields(body);
  check_model(fields.text("model", model.name), model);
  out.n = static_cast<int>(fields.integer("n", 1, 1, kMaxChoices));
  out.stream = fields.boolean("stream", false);
  if (const Json* options = fields.take("stream_options")) {
    if (!out.stream) fail_field("stream_options", "'stream_options' needs 'stream': true");
    JsonFields of(*options, "stream_options.");
    out.include_usage = of.boolean("include_usage", false);
    of.ignore({"include_obfuscation"});
    of.end();
  }
  read_stop(fields.take("stop"), "stop", out.stop);
  read_logprobs(fields, chat, out.request);
  out.request.max_tokens = read_limit(fields, chat, model);
  out.request.ignore_end = fields.boolean("ignore_eos", false);
  input.has_seed = fields.take("seed") != nullptr;
  read_sampling(fields, *model.vocabulary, out.request.sampler);
  input.output = read_structured_output(fields);
  read_cache_fields(fields, model, input);
  read_stream_reports(fields, out);
  out.verbose = fields.boolean("verbose", false);
  read_hints(fields);
  if (chat) {
    input.chat = read_chat(fields);
    fields.end();
    return input;
  }
  const Json* prompt = fields.take("prompt");
  const bool echo = fields.boolean("echo", false);
  out.echo_logs = echo && out.request.top_logprobs >= 0;
  fields.end();
  read_prompts(prompt, echo && !out.echo_logs, model, out);
  check_echo(out);
  check_echo_logs(out);
  return input;
}

}  // namespace palimpsest
