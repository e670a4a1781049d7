#include "palimpsest/server/completion_request.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "palimpsest/budget/split.h"
#include "palimpsest/core/error.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/server/chat_request.h"
#include "palimpsest/server/fields.h"
#include "palimpsest/server/memory_events.h"
#include "palimpsest/server/output_shape.h"
#include "palimpsest/server/prompts.h"
#include "palimpsest/server/sampling_fields.h"
#include "palimpsest/server/sessions.h"
#include "palimpsest/text/system_prompt.h"

namespace palimpsest {
namespace {

constexpr long long kMaxTokens = 1LL << 40;
constexpr std::size_t kMaxStops = 16, kMaxStopBytes = 1024;  // each answer has a copy
constexpr std::size_t kMaxEcho = std::size_t{8} << 20;       // bytes of prompts in an answer

void check_choices(std::size_t prompts, int n) {
  if (prompts * static_cast<std::size_t>(n) > kMaxChoices)
    fail_field("n", "{} prompts with {} answers each: at most {} answers in all", prompts, n, kMaxChoices);
}

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

void read_stop(const Json* stop, std::vector<std::string>& out) {
  if (stop == nullptr) return;
  if (stop->is_array() && stop->size() > kMaxStops)
    fail_field("stop", "'stop' has {} strings: give at most {}", stop->size(), kMaxStops);
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  for (const Json& each : list) {
    if (!each.is_string()) fail_field("stop", "'stop' must be a string or a list of strings");
    out.push_back(each.get<std::string>());
    if (out.back().size() > kMaxStopBytes)
      fail_field("stop", "'stop' has a string of {} bytes: give at most {}", out.back().size(), kMaxStopBytes);
  }
}

void read_logprobs(Fields& fields, bool chat, Request& out) {
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
long long read_limit(Fields& fields, bool chat, const ServedModel& model) {
  std::optional<long long> limit;
  for (const char* name : {"max_completion_tokens", "max_tokens", "n_predict"}) {
    if (fields.take(name) == nullptr) continue;
    const long long given = fields.integer(name, 0, -1, kMaxTokens);
    if (chat && given == 0) fail_field(name, "'{}' must be at least 1 (-1: up to the trained context)", name);
    if (limit && *limit != given)
      fail_field(name, "'{}' has another name in this request, with another value: give one", name);
    limit = given;
  }
  return limit.value_or(chat ? model.default_max_tokens : model.completion_max_tokens.value_or(16));
}

// Without a limit, a text ends with the trained context; a prompt beyond it gets the default.
long long until_context(const CompletionRequest& request, const ServedModel& model) {
  std::size_t longest = 0;
  for (const SharedTokens& prompt : request.prompts) longest = std::max(longest, prompt.size());
  const long long left = model.vocabulary->trained_context() - static_cast<long long>(longest);
  return left > 0 ? left : std::max(model.default_max_tokens, 1LL);
}

// Hints that change no answer, and fields that may only have their default.
void read_hints(Fields& fields) {
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_retention", "id_slot", "timings_per_token", "return_progress", "priority", "request_id",
                 "verbosity", "prediction", "skip_special_tokens", "spaces_between_special_tokens", "include_reasoning",
                 "stream_include_usage"});
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

void read_session(const Json* session, CompletionRequest& out) {
  if (session == nullptr) return;
  Fields fields(*session, "session.");
  const auto name = [&](const char* field) {
    const bool given = fields.take(field) != nullptr;
    std::string text = fields.text(field, "");
    if (given && !Sessions::is_name(text))
      fail_field(fields.path(field), "'{}' must be 1 to 64 letters, digits, '.', '_' and '-', the first no '.'",
                 fields.path(field));
    return text;
  };
  out.restore = name("restore");
  out.save = name("save");
  fields.end();
  out.request.keep = !out.save.empty();
}

}  // namespace

void check_model(const std::string& name, const ServedModel& model) {
  if (model.strict && !model.has_name(name)) throw no_model(name, model);
}

ApiError no_model(const std::string& name, const ServedModel& model) {
  return {404, "invalid_request_error",
          shortened(fmt::format("there is no model '{}': this is '{}'", name, model.name)), "model", "model_not_found"};
}

Method parse_cache(const Json& value, const Method& fallback) {
  Method method = fallback;
  if (value.is_string()) {
    method = parse_method(value.get<std::string>());
  } else {
    Fields fields(value, "cache.");
    if (const std::string name = fields.text("method", ""); !name.empty()) method = parse_method(name);
    for (const auto& [key, each] : value.items()) {
      if (key == "method" || each.is_null() || (key == "pin" && each.is_boolean())) continue;
      if (each.is_structured()) fail_field("cache." + key, "'cache.{}' must be a number or a string", key);
      const std::string text = each.is_string()    ? each.get<std::string>()
                               : each.is_boolean() ? (each.get<bool>() ? "on" : "off")
                                                   : each.dump();
      set_option(method, key, text);
    }
  }
  if (method.split != fallback.split && method.split == Split::kFile)
    fail_field("cache.split", "'split' may name a file only in the server's own --method");
  if (method.scorer != fallback.scorer && method.scorer != "auto")
    fail_field("cache.scorer", "'scorer' may name a file only in the server's own --method");
  validate(method);
  return method;
}

// {"cache": {"pin": true}}
bool pins_prompt(const Json* cache) {
  if (cache == nullptr || !cache->is_object()) return false;
  const auto pin = cache->find("pin");
  return pin != cache->end() && pin->is_boolean() && pin->get<bool>();
}

// {"type": "lookup", "max": 8}
void read_speculative(const Json* speculative, Request& out) {
  if (speculative == nullptr) return;
  Fields of(*speculative, "speculative.");
  if (const std::string type = of.text("type", "lookup"); type != "lookup")
    fail_field("speculative.type", "'speculative.type' is '{}': lookup is supported", type);
  out.drafts.max = static_cast<int>(of.integer("max", DraftOptions().max, 1, kMaxDrafts));
  out.drafts.min = static_cast<int>(of.integer("min", 0, 0, out.drafts.max));
  of.end();
}

// Whether the request continues from kept caches, and leaves its own: prefixes do not change an answer, histories may.
Reuse read_cache_prompt(Fields& fields, bool chat) {
  if (fields.boolean("cache_prompt", chat)) return Reuse::kHistories;
  return fields.take("cache_prompt") == nullptr ? Reuse::kPrefixes : Reuse::kNothing;
}

// `asked`: by the request; otherwise method auto decides.
void pin_system_prompt(const ChatInput& chat, const ServedModel& model, bool asked, CompletionRequest& out) {
  const std::size_t tokens = system_prompt_tokens(*model.chat_template, *model.vocabulary, chat, out.prompts.front());
  if (!asked && !pins_system_prompt(out.request.method, tokens)) return;
  const PositionRange pin{0, static_cast<Position>(tokens)};
  add_pins(out.request.method, {&pin, 1});
}

CompletionRequest parse_completion(const Json& body, bool chat, const ServedModel& model) {
  CompletionRequest out;
  out.chat = chat;
  Fields fields(body);
  check_model(fields.text("model", model.name), model);
  out.n = static_cast<int>(fields.integer("n", 1, 1, kMaxChoices));
  out.stream = fields.boolean("stream", false);
  if (const Json* options = fields.take("stream_options")) {
    if (!out.stream) fail_field("stream_options", "'stream_options' needs 'stream': true");
    Fields of(*options, "stream_options.");
    out.include_usage = of.boolean("include_usage", false);
    of.ignore({"include_obfuscation"});
    of.end();
  }
  read_stop(fields.take("stop"), out.stop);
  read_logprobs(fields, chat, out.request);
  out.request.max_tokens = read_limit(fields, chat, model);
  out.request.ignore_end = fields.boolean("ignore_eos", false);
  out.request.sampler = model.sampling;
  read_sampling(fields, *model.vocabulary, out.request.sampler);
  OutputShape shape = read_output_shape(fields);
  const Json* cache = fields.take("cache");
  out.has_cache = cache != nullptr;
  out.request.method = cache == nullptr ? model.method : parse_cache(*cache, model.method);
  if (Method& m = out.request.method; m.name == kAutoMethod && m.budget == kAutoBudget) m.budget = model.auto_budget;
  out.request.reuse = read_cache_prompt(fields, chat);
  read_session(fields.take("session"), out);
  out.request.memory = read_memory_view(fields.take("memory_events"));
  if (out.request.memory && !out.stream) fail_field("memory_events", "'memory_events' needs 'stream': true");
  const bool pins = pins_prompt(cache);
  if (pins && !out.restore.empty())
    fail_field("cache.pin", "'cache.pin' with a restored session: tokens are pinned where the text begins");
  read_speculative(fields.take("speculative"), out.request);
  read_hints(fields);

  const std::optional<ChatInput> asked = chat ? std::optional(read_chat(fields, model, shape)) : std::nullopt;
  const Json* prompt = chat ? nullptr : fields.take("prompt");
  const bool echo = !chat && fields.boolean("echo", false);
  out.echo_logs = echo && out.request.top_logprobs >= 0;
  fields.end();
  if (!chat) {
    out.pin_prompts = pins;
    read_prompts(prompt, echo && !out.echo_logs, model, out);
    check_echo(out);
    check_echo_logs(out);
    if (!shape.schema.empty()) shape.grammar = grammar_of_schema(shape);
  } else {
    const bool continues = !out.restore.empty();
    ChatPrompt prompted = chat_prompt(*asked, model, continues);
    out.prompts.emplace_back(model.vocabulary->tokenize_with_breaks(prompted.text, !continues, prompted.breaks));
    if (pins || (!continues && out.request.method.name == kAutoMethod)) pin_system_prompt(*asked, model, pins, out);
    if (!prompted.grammar.empty()) shape.grammar = std::move(prompted.grammar);
    SamplerOptions& sampler = out.request.sampler;
    sampler.grammar_prefix = std::move(prompted.grammar_prefix);
    sampler.grammar_triggers = std::move(prompted.grammar_triggers);
    sampler.grammar_tokens = prompted.reply_tokens;
    out.reply_tokens = std::move(prompted.reply_tokens);
    std::ranges::move(prompted.stop, std::back_inserter(out.stop));
    out.format = std::move(prompted.format);
  }
  if (out.request.max_tokens < 0) out.request.max_tokens = until_context(out, model);
  compile(shape, model.vocabulary.get(), out.request.sampler);
  check_sampling(out.request.sampler, *model.vocabulary);
  if (out.request.sampler.min_tokens > out.request.max_tokens)
    fail_field("min_tokens", "'min_tokens' is {}, and 'max_tokens' {}: give at most as many",
               out.request.sampler.min_tokens, out.request.max_tokens);
  if (out.request.ignore_end && out.request.sampler.constrained())
    fail_field("ignore_eos", "'ignore_eos' with a grammar: a grammar ends, so the text must end with it");
  const bool session = !out.restore.empty() || !out.save.empty();
  if (session && out.prompts.size() * static_cast<std::size_t>(out.n) > 1)
    fail_field("session", "a session belongs to one answer: give one prompt, and no 'n'");
  if (out.request.memory && out.prompts.size() * static_cast<std::size_t>(out.n) > 1)
    fail_field("memory_events", "'memory_events' belongs to one answer: give one prompt, and no 'n'");
  if (out.request.memory && !out.request.method.cache)
    fail_field("memory_events", "method {} has no cache to show: choose another", out.request.method.name);
  if (!out.restore.empty() && out.prompts.front().empty() && fields.take("seed") != nullptr)
    fail_field("seed", "a text that continues without a prompt keeps its sampler state: leave out 'seed'");
  return out;
}

}  // namespace palimpsest
