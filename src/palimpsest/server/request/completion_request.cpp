#include "palimpsest/server/request/completion_request.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/evict/auto.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/server/request/chat_request.h"
#include "palimpsest/server/request/sampling_fields.h"
#include "palimpsest/text/system_prompt.h"

namespace palimpsest {
namespace {

// Without a limit, a text ends with the trained context; a prompt beyond it gets the default.
long long until_context(const CompletionRequest& request, const ServedModel& model) {
  std::size_t longest = 0;
  for (const SharedTokens& prompt : request.prompts) longest = std::max(longest, prompt.size());
  const long long left = model.vocabulary->trained_context() - static_cast<long long>(longest);
  return left > 0 ? left : std::max(model.default_max_tokens, 1LL);
}

bool is_legal(const Method& method) {
  try {
    validate(method);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// If the request does not ask for it, only if it is small, and fits beside the other tokens that the method keeps.
void pin_system_prompt(const CompletionInput& input, const ServedModel& model, CompletionRequest& out) {
  const std::size_t tokens =
      system_prompt_tokens(*model.chat_template, *model.vocabulary, *input.chat, out.prompts.front());
  if (!input.pins && !pins_system_prompt(out.request.method, tokens, input.marks_system)) return;
  const PositionRange pin{0, static_cast<Position>(tokens)};
  Method pinned = out.request.method;
  add_pins(pinned, {&pin, 1});
  if (input.pins || is_legal(pinned)) out.request.method = std::move(pinned);
}

void apply_chat(CompletionInput& input, const ServedModel& model) {
  CompletionRequest& out = input.request;
  const bool continues = !out.restore.empty();
  ChatPrompt prompted = chat_prompt(*input.chat, input.output, model, continues, input.names.messages);
  out.prompts.emplace_back(model.vocabulary->tokenize_with_breaks(prompted.text, !continues, prompted.breaks));
  if (input.pins || input.marks_system || (!continues && out.request.method.name == kAutoMethod))
    pin_system_prompt(input, model, out);
  if (!prompted.grammar.empty()) input.output.grammar = std::move(prompted.grammar);
  SamplerOptions& sampler = out.request.sampler;
  sampler.grammar_prefix = std::move(prompted.grammar_prefix);
  sampler.grammar_triggers = std::move(prompted.grammar_triggers);
  sampler.grammar_tokens = prompted.reply_tokens;
  out.reply_tokens = std::move(prompted.reply_tokens);
  std::ranges::move(prompted.stop, std::back_inserter(out.stop));
  out.format = std::move(prompted.format);
}

// Texts of which every token is kept end with the context: beyond it a model writes nonsense.
void limit_to_context(const ServedModel& model, CompletionRequest& out) {
  if (model.context <= 0 || out.request.method.evicts() || !out.request.method.cache) return;
  for (const SharedTokens& prompt : out.prompts) {
    const long long tokens = std::ssize(prompt), left = model.context - tokens;
    if (left <= 0)
      throw ApiError(
          400, "exceed_context_size_error",
          fmt::format("the prompt has {} tokens, which exceeds the available context size ({} tokens): shorten it, "
                      "or give a method that evicts, as in \"cache\": {{\"method\": \"auto\"}}",
                      tokens, model.context))
          .add_detail("n_prompt_tokens", tokens)
          .add_detail("n_ctx", model.context);
    out.request.max_tokens = std::min(out.request.max_tokens, left);
  }
}

void check_whole(const CompletionInput& input, const ServedModel& model) {
  const CompletionRequest& out = input.request;
  const SamplerOptions& sampler = out.request.sampler;
  const CompletionInput::Names& names = input.names;
  check_sampling(sampler, *model.vocabulary, names.sampling);
  if (sampler.min_tokens > out.request.max_tokens)
    fail_field(names.sampling + "min_tokens", "'{}min_tokens' is {}, and '{}' {}: give at most as many", names.sampling,
               sampler.min_tokens, names.limit, out.request.max_tokens);
  if (out.request.ignore_end && sampler.constrained())
    fail_field("ignore_eos", "'ignore_eos' with a grammar: a grammar ends, so the text must end with it");
  const bool one = out.prompts.size() * static_cast<std::size_t>(out.n) == 1;
  if (!one && !(out.restore.empty() && out.save.empty()))
    fail_field("session", "a session belongs to one answer: give one prompt, and no '{}'", names.count);
  if (out.request.memory && !one)
    fail_field("memory_events", "'memory_events' belongs to one answer: give one prompt, and no '{}'", names.count);
  if (out.request.memory && !out.request.method.cache)
    fail_field("memory_events", "method {} has no cache to show: choose another", out.request.method.name);
  if (!out.restore.empty() && out.prompts.front().empty() && input.has_seed)
    fail_field(names.sampling + "seed",
               "a text that continues without a prompt keeps its sampler state: leave out '{}seed'", names.sampling);
}

}  // namespace

CompletionInput::CompletionInput(const ServedModel& model) {
  request.request.sampler = model.sampling;
  request.request.method = model.method;
}

void check_choices(std::size_t prompts, int n, const std::string& field) {
  if (prompts * static_cast<std::size_t>(n) > kMaxChoices)
    fail_field(field, "'{}': {} prompts with {} answers each: at most {} answers in all", field, prompts, n,
               kMaxChoices);
}

void check_model(const std::string& name, const ServedModel& model) {
  if (model.strict && !model.has_name(name)) throw no_model(name, model);
}

ApiError no_model(const std::string& name, const ServedModel& model) {
  return {404, "invalid_request_error",
          shortened(fmt::format("there is no model '{}': this is '{}'", name, model.name)), "model", "model_not_found"};
}

CompletionRequest make_request(CompletionInput input, const ServedModel& model) {
  CompletionRequest& out = input.request;
  out.chat = input.chat.has_value();
  bool& whole = out.request.method.protection.prompt;
  if (!out.restore.empty() && !out.has_cache) whole = false;  // the session keeps its method
  if ((input.pins || whole) && !out.restore.empty())
    fail_field("cache.pin", "'cache.pin' with a restored session: tokens are pinned where the text begins");
  if (out.chat) {
    apply_chat(input, model);
  } else {
    whole = whole || input.pins;
    if (!input.output.schema.empty()) input.output.grammar = grammar_of_schema(input.output);
  }
  if (out.request.max_tokens < 0) out.request.max_tokens = until_context(out, model);
  limit_to_context(model, out);
  compile_output(input.output, model.vocabulary.get(), out.request.sampler);
  check_whole(input, model);
  return std::move(out);
}

}  // namespace palimpsest
