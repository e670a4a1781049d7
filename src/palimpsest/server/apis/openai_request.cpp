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

void read_prompts(JsonFields& fields, bool echo, const ServedModel& model, CompletionRequest& out) {
  const bool continues = !out.restore.empty();
  const Json none = "";
  const Json& given = continues && fields.take("prompt") == nullptr ? none : fields.need("prompt");
  fields.end();
  const auto prompts = list_prompts(fields, "prompt", given);
  check_choices(prompts.size(), out.n, "n");
  for (const auto& [path, prompt] : prompts) {
    out.prompts.push_back(read_prompt(*prompt, path, model, continues));
    if (echo)
      out.echo.push_back(prompt->is_string() ? prompt->get<std::string>()
                                             : model.vocabulary->detokenize(out.prompts.back()));
  }
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
void check_echo_logs(const CompletionRequest& request, const std::string& limit) {
  if (!request.echo_logs) {
    if (request.request.max_tokens == 0) fail_field(limit, "'{}' 0 needs 'echo' and 'logprobs'", limit);
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
      fail_field(limit, "'{}' is 0, and a prompt of one token has no log probabilities", limit);
}

void read_logprobs(JsonFields& fields, bool chat, Request& out) {
  if (!chat) {
    out.top_logprobs = static_cast<int>(fields.integer("logprobs", -1, 0, 20));
    return;
  }
  const bool wanted = fields.boolean("logprobs", false);
  const bool counted = fields.take("top_logprobs") != nullptr;
  if (counted && !wanted) fields.refuse("top_logprobs", "needs 'logprobs': true");
  const auto top = static_cast<int>(fields.integer("top_logprobs", 0, 0, 20));
  if (wanted) out.top_logprobs = top;
}

// `max_tokens` and its other names. -1: as many as fit into the trained context, see until_context().
void read_limit(JsonFields& fields, const ServedModel& model, CompletionInput& input) {
  const bool chat = input.chat.has_value();
  std::optional<long long> limit;
  for (const char* name : {"max_completion_tokens", "max_tokens", "n_predict"}) {
    if (fields.take(name) == nullptr) continue;
    const long long given = fields.integer(name, 0, -1, kMaxAnswerTokens);
    if (chat && given == 0) fields.refuse(name, "must be at least 1 (-1: up to the trained context)");
    if (limit && *limit != given) fields.refuse(name, "has another name in this request, with another value: give one");
    limit = given;
    input.names.limit = name;
  }
  input.request.request.max_tokens =
      limit.value_or(chat ? model.default_max_tokens : model.completion_max_tokens.value_or(16));
}

// "grammar" or "json_schema" (llama-server's), or "response_format".
void read_output(JsonFields& fields, StructuredOutput& out) {
  read_grammar(fields, out);
  if (const Json* schema = fields.take("json_schema")) {
    if (!out.grammar.empty() || fields.take("response_format") != nullptr)
      fields.refuse("json_schema", "with 'grammar' or 'response_format': leave the others out");
    return read_schema(*schema, "json_schema", true, out);
  }
  fields.object("response_format", [&](JsonFields& format) {
    const std::string type = format.text("type", "");
    if (!out.grammar.empty() && type != "text")
      fields.refuse("grammar", "and 'response_format' exclude each other: leave one of them out");
    if (type == "json_object") {
      const Json* schema = format.take("schema");  // as llama-server has it
      read_schema(schema == nullptr ? kAnyObject : *schema, format.path("schema"), true, out);
    } else if (type == "json_schema") {
      format.need_object("json_schema", [&](JsonFields& named) {
        named.ignore({"name", "description"});
        read_schema(named.need("schema"), named.path("schema"), named.boolean("strict", true), out);
      });
    } else if (type != "text") {
      format.refuse("type", "must be text, json_object or json_schema");
    }
  });
}

// Hints that change no answer, and fields that may only have their default.
void read_hints(JsonFields& fields) {
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "id_slot", "request_id", "verbosity",
                 "prediction", "skip_special_tokens", "spaces_between_special_tokens", "include_reasoning",
                 "stream_include_usage"});
  const auto only = [&](const char* name, const Json& value) {
    const Json* given = fields.take(name);
    if (given != nullptr && *given != value) fields.refuse(name, "may only be {}", value.dump());
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
  fields.object("stream_options", [&](JsonFields& options) {
    if (!out.stream) fields.refuse("stream_options", "needs 'stream': true");
    out.include_usage = options.boolean("include_usage", false);
    options.ignore({"include_obfuscation"});
  });
  read_stop(fields, "stop", out.stop);
  read_logprobs(fields, chat, out.request);
  read_limit(fields, model, input);
  out.request.ignore_end = fields.boolean("ignore_eos", false);
  input.has_seed = fields.take("seed") != nullptr;
  read_sampling(fields, *model.vocabulary, out.request.sampler);
  read_output(fields, input.output);
  read_cache_fields(fields, model, input);
  read_stream_reports(fields, out);
  out.verbose = fields.boolean("verbose", false);
  read_hints(fields);
  if (chat) {
    input.chat = read_chat(fields);
    fields.end();
    return input;
  }
  const bool echo = fields.boolean("echo", false);
  out.echo_logs = echo && out.request.top_logprobs >= 0;
  read_prompts(fields, echo && !out.echo_logs, model, out);
  check_echo(out);
  check_echo_logs(out, input.names.limit);
  return input;
}

}  // namespace palimpsest
