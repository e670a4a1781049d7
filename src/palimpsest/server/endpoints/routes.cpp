#include "palimpsest/server/endpoints/routes.h"

#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <regex>

#include "palimpsest/core/version.h"
#include "palimpsest/server/apis/anthropic_request.h"
#include "palimpsest/server/apis/llama_request.h"
#include "palimpsest/server/apis/ollama_request.h"
#include "palimpsest/server/apis/openai_request.h"
#include "palimpsest/server/apis/responses_request.h"
#include "palimpsest/server/endpoints/embedding_endpoints.h"
#include "palimpsest/server/endpoints/model_endpoints.h"
#include "palimpsest/server/endpoints/ollama_model_endpoints.h"
#include "palimpsest/server/endpoints/page_endpoints.h"
#include "palimpsest/server/endpoints/rerank_endpoint.h"
#include "palimpsest/server/endpoints/session_edit_endpoint.h"
#include "palimpsest/server/endpoints/session_memory_endpoint.h"
#include "palimpsest/server/http/json_response.h"
#include "palimpsest/server/http/web_guard.h"
#include "palimpsest/server/log.h"
#include "palimpsest/server/reply/completion_exchange.h"
#include "palimpsest/server/reply/iso_time.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/request/sampling_fields.h"

namespace palimpsest {
namespace {

using Http = httplib::Server;
using In = httplib::Request;
using Out = httplib::Response;

// Whether the client expects Anthropic's API: by the path, or by a header that its clients send with all requests.
bool is_anthropic(const In& in) {
  std::string_view path = in.path;
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  return path == "/messages" || path.starts_with("/messages/") || in.has_header("anthropic-version");
}

std::string request_id() {
  const Json& fields = log_fields();
  return fields.contains("request_id") ? fields["request_id"].get<std::string>() : std::string();
}

// In the form of the API that the request belongs to.
Json error_json(const ApiError& error, const In& in) {
  if (in.path.starts_with("/api/")) return {{"error", error.what()}};
  if (is_anthropic(in)) return anthropic_error(error, request_id());
  return error.json();
}

void refuse(const ApiError& error, const In& in, Out& out) {
  out.status = error.status();
  if (error.status() == 499) {  // a status of logs; a client that closed only its writing side reads the answer
    out.status = 400;
    log_fields()["status"] = 499;
  }
  if (error.status() == 503) out.set_header("Retry-After", "1");
  if (error.status() == 401) out.set_header("WWW-Authenticate", "Bearer");
  log_fields()["error"] = error.log_text();
  reply_json(error_json(error, in), out);
}

// Constant-time comparison: does not reveal how many characters of a guessed key match.
bool equal_in_constant_time(const std::string& a, const std::string& b) {
  unsigned char differ = a.size() != b.size();
  for (std::size_t i = 0; i < a.size(); ++i)
    differ |= static_cast<unsigned char>(a[i] ^ (b.empty() ? 0 : b[i % b.size()]));
  return differ == 0;
}

// Number of the request's API key, from 1; 0: none of them. If two headers have keys, that of `Authorization` counts.
int number_of_key(const In& in, const std::vector<std::string>& keys) {
  const std::string bearer = in.get_header_value("Authorization"), plain = in.get_header_value("X-Api-Key");
  int of_bearer = 0, of_plain = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (equal_in_constant_time(bearer, "Bearer " + keys[i])) of_bearer = static_cast<int>(i) + 1;
    if (equal_in_constant_time(plain, keys[i])) of_plain = static_cast<int>(i) + 1;
  }
  return of_bearer != 0 ? of_bearer : of_plain;
}

// When the queue will be empty, if nobody joins it: a client that returns then begins at once. 1 to 60 seconds:
// OpenAI's clients ignore larger numbers.
std::string retry_after(const Scheduler& scheduler) {
  return std::to_string(static_cast<int>(std::clamp(std::ceil(scheduler.seconds_until_begun()), 1.0, 60.0)));
}

// For callbacks whose exceptions would end the process. Loses at most one log line or one error's text.
template <typename Action>
void without_throwing(Action action) noexcept {
  try {
    action();
  } catch (...) {
  }
}

template <typename Handler>
auto guarded(std::shared_ptr<Service> service, Handler handler) {
  return [service = std::move(service), handler](const In& in, Out& out) {
    try {
      handler(in, out);
    } catch (...) {
      const ApiError error = current_error();
      if (error.status() == 429) {
        ++service->metrics()->rejected;
        out.set_header("Retry-After", retry_after(service->scheduler()));
      }
      refuse(error, in, out);
    }
  };
}

Json model_json(const ServedModel& model, long long created) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "palimpsest"},
          {"aliases", model.aliases}};
}

Json anthropic_model_json(const ServedModel& model, long long created) {
  return {{"type", "model"},
          {"id", model.name},
          {"display_name", model.name},
          {"created_at", iso_time(created)},
          {"lifecycle", "active"},
          {"max_input_tokens", model.vocabulary->trained_context()}};
}

// Whether a page of this origin may call the server; sets the headers that say so.
bool allow_origin(const std::string& allowed, const In& in, Out& out) {
  const std::string origin = in.get_header_value("Origin");
  if (allowed.empty() || origin.empty()) return false;
  out.set_header("Vary", "Origin");
  if (allowed != "*" && allowed != origin) return false;
  out.set_header("Access-Control-Allow-Origin", allowed == "*" ? "*" : origin);
  out.set_header("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  return true;
}

// Browsers ask with OPTIONS, without a key.
void answer_preflight(const In& in, Out& out) {
  out.set_header("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
  const std::string headers = in.get_header_value("Access-Control-Request-Headers");
  out.set_header("Access-Control-Allow-Headers", headers.empty() ? "Authorization, Content-Type" : headers);
  out.set_header("Access-Control-Max-Age", "86400");
  out.status = 204;
}

// Who may call: throws ApiError for anyone else. false: answered.
bool admit(const ServerOptions& options, const In& in, Out& out) {
  const bool from_page = allow_origin(options.cors_origin, in, out);
  if (from_page && in.method == "OPTIONS") {
    answer_preflight(in, out);
    return false;
  }
  if (in.path == "/health" || in.path == "/v1/health") return true;
  const std::vector<std::string>& keys = options.api_keys;
  const std::string host = in.get_header_value("Host");
  // A page that is not the server's own has no key.
  if (keys.empty() && !is_allowed_host(host, options.allowed_hosts))
    throw ApiError(403, "permission_error",
                   fmt::format("this server is not known as '{}': start it with --allowed-host {}, or call it by its "
                               "address",
                               shortened(host), shortened(host)),
                   "", "host_not_allowed");
  if (!from_page && !is_own_origin(in))
    throw ApiError(403, "permission_error",
                   "web pages of other sites may not call this server: start it with --cors-origin ORIGIN to allow one",
                   "", "origin_not_allowed");
  if (!keys.empty() && in.path != "/" && number_of_key(in, keys) == 0)
    throw ApiError(401, "authentication_error",
                   "this server requires an API key: Authorization: Bearer KEY, or X-Api-Key: KEY", "",
                   "invalid_api_key");
  return true;
}

// What handlers need; outlives them.
struct Context {
  std::shared_ptr<Service> service;
  ServerOptions options;
  long long created;  // when the server started, in seconds since 1970
};
using Handler = void (*)(const Context& c, const In& in, Out& out);

void health(const Context& c, const In&, Out& out) {
  if (c.service->failed()) throw ApiError(500, "server_error", "the scheduler stopped: see the log");
  if (c.service->closed()) throw ApiError(503, "server_error", "the server is shutting down", "", "shutting_down");
  reply_json({{"status", "ok"}}, out);
}

void metrics(const Context& c, const In&, Out& out) {
  out.set_content(c.service->metrics()->text(c.service->scheduler().load(), c.service->model().name),
                  "text/plain; version=0.0.4; charset=utf-8");
}

void list_models(const Context& c, const In& in, Out& out) {
  if (is_anthropic(in)) {
    const Json model = anthropic_model_json(c.service->model(), c.created);
    return reply_json(
        {{"data", Json::array({model})}, {"has_more", false}, {"first_id", model["id"]}, {"last_id", model["id"]}},
        out);
  }
  reply_json({{"object", "list"}, {"data", Json::array({model_json(c.service->model(), c.created)})}}, out);
}

void show_model(const Context& c, const In& in, Out& out) {
  if (!c.service->model().has_name(in.matches[1].str())) throw no_model(in.matches[1].str(), c.service->model());
  reply_json((is_anthropic(in) ? anthropic_model_json : model_json)(c.service->model(), c.created), out);
}

// Clients of different keys share no sessions, unless the server was started so.
Sessions& sessions_of(const Context& c, const In& in) {
  return c.service->sessions(number_of_key(in, c.options.api_keys));
}

void list_sessions(const Context& c, const In& in, Out& out) {
  reply_json({{"object", "list"}, {"data", sessions_of(c, in).list()}}, out);
}

void remove_session(const Context& c, const In& in, Out& out) {
  const std::string name = in.matches[1];
  if (!Sessions::is_name(name))
    fail_field("session", "this is no session's name: GET /v1/sessions lists those there are");
  sessions_of(c, in).remove(name);
  reply_json({{"id", name}, {"object", "session"}, {"deleted", true}}, out);
}

// Endpoints that run the model: each reads its form of request, and answers in its form. Clients of different keys
// share no cache.
void start_answer(const Context& c, CompletionRequest request, std::unique_ptr<ReplyWriter> form, const In& in,
                  Out& out) {
  request.request.scope = number_of_key(in, c.options.api_keys);
  complete(c.service, std::move(request), std::move(form), c.options, in, out);
}

template <bool kChat>
void completion(const Context& c, const In& in, Out& out) {
  ReplyHead head = reply_head(*c.service, kChat, kChat ? "chatcmpl-" : "cmpl-");
  const ServedModel& model = c.service->model();
  CompletionRequest request = make_request(read_openai(parse_json(in.body), kChat, model), model);
  auto form = openai_writer(std::move(head), request.request.top_logprobs >= 0, request.include_usage);
  start_answer(c, std::move(request), std::move(form), in, out);
}

ResponseRequest asked_response(const Context& c, const In& in, const Json& body) {
  JsonFields fields(body);
  const std::string previous = fields.text("previous_response_id", "");
  const int scope = number_of_key(in, c.options.api_keys);
  const Json items =
      previous.empty() ? Json::array() : c.service->responses().items(previous, scope, "previous_response_id");
  return read_response(body, items, c.service->model());
}

void create_response(const Context& c, const In& in, Out& out) {
  ReplyHead head = reply_head(*c.service, true, "resp_");
  const Json body = parse_json(in.body);
  ResponseRequest asked = asked_response(c, in, body);
  std::function<void(const Json&, const Json&)> keep;
  if (JsonFields(body).boolean("store", true))
    keep = [service = c.service, scope = number_of_key(in, c.options.api_keys), id = head.id,
            items = std::move(asked.items)](const Json& output, const Json& response) {
      Json all = items;
      for (const Json& item : output) all.push_back(item);
      service->responses().put(id, scope, all, response);
    };
  start_answer(c, make_request(std::move(asked.input), c.service->model()),
               responses_writer(std::move(head), body, std::move(keep)), in, out);
}

void show_response(const Context& c, const In& in, Out& out) {
  reply_json(c.service->responses().response(in.matches[1], number_of_key(in, c.options.api_keys)), out);
}

void remove_response(const Context& c, const In& in, Out& out) {
  c.service->responses().remove(in.matches[1], number_of_key(in, c.options.api_keys));
  reply_json({{"id", in.matches[1].str()}, {"object", "response"}, {"deleted", true}}, out);
}

// Of a request that is not answered: also of one that would exceed the context.
std::size_t prompt_tokens(CompletionInput input, ServedModel model) {
  model.context = 0;
  return make_request(std::move(input), model).prompts.front().size();
}

void count_chat(const Context& c, const In& in, Out& out) {
  const ServedModel& model = c.service->model();
  reply_json({{"input_tokens", prompt_tokens(read_openai(parse_json(in.body), true, model), model)}}, out);
}

void count_response(const Context& c, const In& in, Out& out) {
  const std::size_t tokens = prompt_tokens(asked_response(c, in, parse_json(in.body)).input, c.service->model());
  reply_json({{"object", "response.input_tokens"}, {"input_tokens", tokens}}, out);
}

void create_message(const Context& c, const In& in, Out& out) {
  ReplyHead head = reply_head(*c.service, true, "msg_");
  CompletionInput input = read_anthropic(parse_json(in.body), false, c.service->model());
  AnthropicWriterOptions form{.head = std::move(head), .request_id = request_id(), .stop = input.request.stop};
  CompletionRequest request = make_request(std::move(input), c.service->model());
  form.prompt_tokens = std::ssize(request.prompts.front());
  start_answer(c, std::move(request), anthropic_writer(std::move(form)), in, out);
}

void count_message(const Context& c, const In& in, Out& out) {
  const ServedModel& model = c.service->model();
  reply_json({{"input_tokens", prompt_tokens(read_anthropic(parse_json(in.body), true, model), model)}}, out);
}

template <bool kChat>
void ollama(const Context& c, const In& in, Out& out) {
  reply_head(*c.service, kChat, "ollama-");
  const ServedModel& model = c.service->model();
  OllamaRequest asked = read_ollama(parse_json(in.body), kChat, model);
  if (!asked.only.empty()) return reply_json(ollama_loaded(model.name, kChat, asked.only), out);
  start_answer(c, make_request(std::move(asked.input), model), ollama_writer(model.name, kChat), in, out);
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

template <bool kInfill>
void llama_completion(const Context& c, const In& in, Out& out) {
  const ServedModel& model = c.service->model();
  reply_head(*c.service, false, "cmpl-");
  LlamaRequest asked = kInfill ? read_infill(parse_json(in.body), model) : read_llama(parse_json(in.body), model);
  CompletionRequest request = make_request(std::move(asked.input), model);
  LlamaWriterOptions form{.model = model.name,
                          .prompts = prompts_of_answers(request, model),
                          .settings = sampling_json(request.request.sampler),
                          .return_tokens = asked.return_tokens,
                          .context = request.request.method.evicts() ? 0 : model.context,
                          .response_fields = std::move(asked.response_fields)};
  form.settings["n_predict"] = form.settings["max_tokens"] = request.request.max_tokens;
  form.settings["ignore_eos"] = request.request.ignore_end;
  form.settings["stream"] = request.stream;
  form.settings["stop"] = request.stop;
  form.settings["n_probs"] = std::max(request.request.top_logprobs, 0);
  start_answer(c, std::move(request), llama_writer(std::move(form)), in, out);
}

void chat_page(const Context& c, const In& in, Out& out) {
  if (!c.options.page) throw error_of_status(404);
  page(in, out);
}

struct Route {
  Endpoint endpoint;
  Handler handler;
  bool runs_model = false;  // refused while the server shuts down
};

const std::vector<Route>& routes() {
  static const std::vector<Route> all = {
      {{"POST", "/v1/chat/completions"}, completion<true>, true},
      {{"POST", "/v1/chat/completions/input_tokens"}, count_chat},
      {{"POST", "/v1/completions"}, completion<false>, true},
      {{"POST", "/completion"}, llama_completion<false>, true},
      {{"POST", "/infill"}, llama_completion<true>, true},
      {{"POST", "/v1/responses"}, create_response, true},
      {{"POST", "/v1/responses/input_tokens"}, count_response},
      {{"GET", "/v1/responses/NAME"}, show_response},
      {{"DELETE", "/v1/responses/NAME"}, remove_response},
      {{"POST", "/v1/messages"}, create_message, true},
      {{"POST", "/v1/messages/count_tokens"}, count_message},
      {{"POST", "/v1/embeddings"},
       [](const Context& c, const In& in, Out& out) { embed(*c.service, c.options, in, out); },
       true},
      {{"POST", "/v1/rerank"},
       [](const Context& c, const In& in, Out& out) { rerank(*c.service, c.options, in, out); },
       true},
      {{"POST", "/tokenize"}, [](const Context& c, const In& in, Out& out) { tokenize(*c.service, in, out); }},
      {{"POST", "/detokenize"}, [](const Context& c, const In& in, Out& out) { detokenize(*c.service, in, out); }},
      {{"POST", "/apply-template"},
       [](const Context& c, const In& in, Out& out) { apply_template(*c.service, in, out); }},
      {{"GET", "/v1/models"}, list_models},
      {{"GET", "/v1/models/NAME", false}, show_model},
      {{"GET", "/v1/methods"}, [](const Context& c, const In&, Out& out) { list_methods(*c.service, out); }},
      {{"GET", "/v1/sessions"}, list_sessions},
      {{"GET", "/v1/sessions/NAME/memory"},
       [](const Context& c, const In& in, Out& out) { session_memory(*c.service, sessions_of(c, in), in, out); }},
      {{"POST", "/v1/sessions/NAME/edit"},
       [](const Context& c, const In& in, Out& out) {
         edit_session(*c.service, sessions_of(c, in), c.options, in, out);
       },
       true},
      {{"GET", "/health"}, health},
      {{"GET", "/metrics"}, metrics},
      {{"GET", "/props"}, [](const Context& c, const In&, Out& out) { props(*c.service, out); }},
      {{"GET", "/slots"}, [](const Context& c, const In&, Out& out) { slots(*c.service, out); }},
      {{"GET", "/tokenizer_info"}, [](const Context& c, const In&, Out& out) { tokenizer_info(*c.service, out); }},
      {{"GET", "/", false}, chat_page},
      {{"DELETE", "/v1/sessions/NAME"}, remove_session},
      {{"POST", "/api/chat"}, ollama<true>, true},
      {{"POST", "/api/generate"}, ollama<false>, true},
      {{"POST", "/api/embed"},
       [](const Context& c, const In& in, Out& out) { embed_for_ollama(*c.service, c.options, in, out); },
       true},
      {{"POST", "/api/embeddings"},
       [](const Context& c, const In& in, Out& out) { embed_one_for_ollama(*c.service, c.options, in, out); },
       true},
      {{"GET", "/api/tags"}, [](const Context& c, const In&, Out& out) { ollama_tags(*c.service, out); }},
      {{"GET", "/api/ps"}, [](const Context& c, const In&, Out& out) { ollama_ps(*c.service, out); }},
      {{"POST", "/api/show"}, [](const Context& c, const In& in, Out& out) { ollama_show(*c.service, in, out); }},
      {{"GET", "/api/version"},
       [](const Context&, const In&, Out& out) {
         reply_json({{"version", version()}}, out);
       }},
  };
  return all;
}

// The path as httplib's pattern: NAME matches anything, and all but the page and Ollama's API are there with /v1 and
// without.
std::string pattern_of(std::string_view path) {
  std::string pattern(path);
  if (path != "/" && !path.starts_with("/api/"))
    pattern = "(?:/v1)?" + pattern.substr(path.starts_with("/v1/") ? std::string_view("/v1").size() : 0);
  if (const auto name = pattern.find("NAME"); name != std::string::npos) pattern.replace(name, 4, "(.+)");
  return pattern;
}

// The body as it is, whatever its type: the library would parse a form, and refuse one of more than 8 KiB.
template <typename Handler>
Http::HandlerWithContentReader with_body(Handler handler, std::size_t max_body) {
  return [handler, max_body](const In& in, Out& out, const httplib::ContentReader& read) {
    try {
      check_content_type(in);
    } catch (const ApiError& error) {
      return refuse(error, in, out);
    }
    In whole = in;
    bool too_long = in.get_header_value_u64("Content-Length") > max_body;
    const bool well = !too_long && read([&](const char* bytes, std::size_t size) {
      too_long = whole.body.size() + size > max_body;
      if (!too_long) whole.body.append(bytes, size);
      return !too_long;
    });
    if (well)
      handler(whole, out);
    else
      out.status = too_long ? 413 : 400;
  };
}

void add_route(Http& http, const Route& route, const std::shared_ptr<const Context>& context) {
  const auto handler = guarded(context->service, [context, &route](const In& in, Out& out) {
    if (route.runs_model && context->service->closed())
      throw ApiError(503, "server_error", "the server is shutting down: try another, or again later", "",
                     "shutting_down");
    route.handler(*context, in, out);
  });
  const std::string pattern = pattern_of(route.endpoint.path);
  if (route.endpoint.method == "GET")
    http.Get(pattern, handler);
  else if (route.endpoint.method == "POST")
    http.Post(pattern, with_body(handler, context->options.max_body));
  else
    http.Delete(pattern, handler);
}

// The method of the endpoint at this path; "": there is none.
std::string method_at(const std::string& path) {
  for (const Route& route : routes())
    if (std::regex_match(path, std::regex(pattern_of(route.endpoint.path)))) return std::string(route.endpoint.method);
  return {};
}

}  // namespace

void add_routes(Http& http, const std::shared_ptr<Service>& service, const ServerOptions& options) {
  http.set_pre_routing_handler([service, options](const In& in, Out& out) {
    log_begin();
    const std::string id = new_id("req-");
    log_fields()["request_id"] = id;
    out.set_header("X-Request-Id", id);
    if (is_anthropic(in)) out.set_header("Request-Id", id);
    try {
      return admit(options, in, out) ? Http::HandlerResponse::Unhandled : Http::HandlerResponse::Handled;
    } catch (const ApiError& error) {
      refuse(error, in, out);
      return Http::HandlerResponse::Handled;
    }
  });
  // These must not throw: httplib calls some of them outside of its try blocks.
  http.set_exception_handler([](const In& in, Out& out, const std::exception_ptr& thrown) {
    without_throwing([&] {
      try {
        std::rethrow_exception(thrown);
      } catch (...) {
        refuse(current_error(), in, out);
      }
    });
  });
  const auto refuse_status = [](const In& in, Out& out) {
    if (!out.body.empty()) return;
    if (const std::string method = out.status == 404 ? method_at(in.path) : std::string(); !method.empty()) {
      out.set_header("Allow", method);
      out.status = 405;
    }
    refuse(error_of_status(out.status), in, out);
  };
  http.set_error_handler(
      [refuse_status](const In& in, Out& out) { without_throwing([&] { refuse_status(in, out); }); });
  http.set_logger([quiet = options.quiet](const In& in, const Out& out) {
    without_throwing([&] { log_end(in.method, in.path, out.status, quiet); });
  });

  const auto context = std::make_shared<const Context>(
      Context{service, options, std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())});
  for (const Route& route : routes()) add_route(http, route, context);
}

std::vector<Endpoint> endpoints() {
  std::vector<Endpoint> all;
  for (const Route& route : routes()) all.push_back(route.endpoint);
  return all;
}

}  // namespace palimpsest
