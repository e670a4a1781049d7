#include <algorithm>
#include <utility>

#include "palimpsest/server/apis/anthropic_request.h"
#include "palimpsest/server/apis/llama_request.h"
#include "palimpsest/server/apis/ollama_request.h"
#include "palimpsest/server/apis/openai_request.h"
#include "palimpsest/server/apis/reply_writers.h"
#include "palimpsest/server/apis/responses_request.h"
#include "palimpsest/server/endpoints/endpoints.h"
#include "palimpsest/server/reply/completion_exchange.h"
#include "palimpsest/server/request/sampling_fields.h"

namespace palimpsest {
namespace {

void complete_openai(const HttpCall& call, bool chat) {
  ReplyHead head = reply_head(call, chat, chat ? "chatcmpl-" : "cmpl-");
  CompletionRequest request = make_request(read_openai(parse_json(call.in.body), chat, call.model()), call.model());
  auto writer = openai_writer(std::move(head), request.request.top_logprobs >= 0, request.include_usage);
  run_completion(call, std::move(request), std::move(writer));
}

// Counts the prompt of a request that is not run; it may exceed the context.
std::size_t prompt_tokens(CompletionInput input, ServedModel model) {
  model.context = 0;
  return make_request(std::move(input), model).prompts.front().size();
}

ResponsesRequest responses_request(const HttpCall& call, const Json& body) {
  const std::string previous = JsonFields(body).text("previous_response_id", "");
  const Json items =
      previous.empty() ? Json::array() : call.host.responses().items(previous, call.key(), "previous_response_id");
  return read_responses(body, items, call.model());
}

// The answers in llama-server's form have their prompts.
std::vector<LlamaWriterOptions::Prompt> prompts_of_answers(const CompletionRequest& request, const ServedModel& model) {
  constexpr std::size_t kMaxPrompts = std::size_t{8} << 20;
  std::vector<LlamaWriterOptions::Prompt> out;
  std::size_t bytes = 0;
  for (const SharedTokens& prompt : request.prompts) {
    const std::string text = model.vocabulary->detokenize(prompt, true);
    bytes += text.size() * static_cast<std::size_t>(request.n);
    if (bytes > kMaxPrompts)
      fail_field("n_cmpl", "the answers would return {} bytes of prompts and more: at most {}", bytes, kMaxPrompts);
    for (int i = 0; i < request.n; ++i) out.push_back({text, std::ssize(prompt)});
  }
  return out;
}

void complete_llama(const HttpCall& call, LlamaRequest (*read)(const Json& body, const ServedModel& model)) {
  const ServedModel& model = call.model();
  reply_head(call, false, "cmpl-");
  LlamaRequest given = read(parse_json(call.in.body), model);
  CompletionRequest request = make_request(std::move(given.input), model);
  LlamaWriterOptions options{.model = model.name,
                             .prompts = prompts_of_answers(request, model),
                             .settings = sampling_json(request.request.sampler),
                             .return_tokens = given.return_tokens,
                             .context = request.request.method.evicts() ? 0 : model.context,
                             .response_fields = std::move(given.response_fields)};
  options.settings["n_predict"] = options.settings["max_tokens"] = request.request.max_tokens;
  options.settings["ignore_eos"] = request.request.ignore_end;
  options.settings["stream"] = request.stream;
  options.settings["stop"] = request.stop;
  options.settings["n_probs"] = std::max(request.request.top_logprobs, 0);
  run_completion(call, std::move(request), llama_writer(std::move(options)));
}

void complete_ollama(const HttpCall& call, bool chat) {
  reply_head(call, chat, "ollama-");
  const ServedModel& model = call.model();
  OllamaRequest given = read_ollama(parse_json(call.in.body), chat, model);
  if (!given.only.empty()) return call.reply(ollama_loaded(model.name, chat, given.only));
  run_completion(call, make_request(std::move(given.input), model), ollama_writer(model.name, chat));
}

}  // namespace

void complete_chat(const HttpCall& call) {
  complete_openai(call, true);
}

void complete_text(const HttpCall& call) {
  complete_openai(call, false);
}

void count_chat_tokens(const HttpCall& call) {
  const ServedModel& model = call.model();
  call.reply({{"input_tokens", prompt_tokens(read_openai(parse_json(call.in.body), true, model), model)}});
}

void create_response(const HttpCall& call) {
  ReplyHead head = reply_head(call, true, "resp_");
  const Json body = parse_json(call.in.body);
  ResponsesRequest given = responses_request(call, body);
  std::function<void(const Json&, const Json&)> keep;
  if (given.store)
    keep = [service = call.service, scope = call.key(), id = head.id, items = std::move(given.items)](
               const Json& output, const Json& response) {
      Json all = items;
      for (const Json& item : output) all.push_back(item);
      service->responses().put(id, scope, all, response);
    };
  run_completion(call, make_request(std::move(given.input), call.model()),
                 responses_writer(std::move(head), body, std::move(keep)));
}

void count_response_tokens(const HttpCall& call) {
  const std::size_t tokens = prompt_tokens(responses_request(call, parse_json(call.in.body)).input, call.model());
  call.reply({{"object", "response.input_tokens"}, {"input_tokens", tokens}});
}

void show_response(const HttpCall& call) {
  call.reply(call.host.responses().response(call.name(), call.key()));
}

void remove_response(const HttpCall& call) {
  call.host.responses().remove(call.name(), call.key());
  call.reply({{"id", call.name()}, {"object", "response"}, {"deleted", true}});
}

void create_message(const HttpCall& call) {
  ReplyHead head = reply_head(call, true, "msg_");
  CompletionInput input = read_anthropic(parse_json(call.in.body), false, call.model());
  AnthropicWriterOptions options{.head = std::move(head), .request_id = call.request_id(), .stop = input.request.stop};
  CompletionRequest request = make_request(std::move(input), call.model());
  options.prompt_tokens = std::ssize(request.prompts.front());
  run_completion(call, std::move(request), anthropic_writer(std::move(options)));
}

void count_message_tokens(const HttpCall& call) {
  const ServedModel& model = call.model();
  call.reply({{"input_tokens", prompt_tokens(read_anthropic(parse_json(call.in.body), true, model), model)}});
}

void llama_completion(const HttpCall& call) {
  complete_llama(call, read_llama);
}

void llama_infill(const HttpCall& call) {
  complete_llama(call, read_infill);
}

void ollama_chat(const HttpCall& call) {
  complete_ollama(call, true);
}

void ollama_generate(const HttpCall& call) {
  complete_ollama(call, false);
}

}  // namespace palimpsest
