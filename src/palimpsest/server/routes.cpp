#include "palimpsest/server/routes.h"

#include <httplib.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <set>

#include "palimpsest/core/version.h"
#include "palimpsest/server/completions.h"
#include "palimpsest/server/embeddings.h"
#include "palimpsest/server/fields.h"
#include "palimpsest/server/info.h"
#include "palimpsest/server/log.h"
#include "palimpsest/server/memory_route.h"
#include "palimpsest/server/ollama.h"
#include "palimpsest/server/page_route.h"
#include "palimpsest/server/responses.h"

namespace palimpsest {
namespace {

using Http = httplib::Server;
using In = httplib::Request;
using Out = httplib::Response;

constexpr const char* kJson = "application/json";

void refuse(const ApiError& error, Out& out) {
  out.status = error.status();
  if (error.status() == 503) out.set_header("Retry-After", "1");
  if (error.status() == 401) out.set_header("WWW-Authenticate", "Bearer");
  log_fields()["error"] = error.what();
  out.set_content(dump(error.json()), kJson);
}

// Constant-time comparison: does not reveal how many characters of a guessed key match.
bool equal_in_constant_time(const std::string& a, const std::string& b) {
  unsigned char differ = a.size() != b.size();
  for (std::size_t i = 0; i < a.size(); ++i)
    differ |= static_cast<unsigned char>(a[i] ^ (b.empty() ? 0 : b[i % b.size()]));
  return differ == 0;
}

// Number of the request's API key, from 1; 0: none of them.
int number_of_key(const In& in, const std::vector<std::string>& keys) {
  const std::string given = in.get_header_value("Authorization");
  int number = 0;
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (equal_in_constant_time(given, "Bearer " + keys[i])) number = static_cast<int>(i) + 1;
  return number;
}

// Estimated seconds until the waiting requests are served, at the recent rate; 1 to 60.
std::string retry_after(const SchedulerLoad& load) {
  return std::to_string(static_cast<int>(std::clamp(std::ceil(load.waiting * load.seconds_per_request), 1.0, 60.0)));
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
        out.set_header("Retry-After", retry_after(service->scheduler().load()));
      }
      refuse(error, out);
    }
  };
}

Json model_json(const ServedModel& model, long long created) {
  return {{"id", model.name}, {"object", "model"}, {"created", created}, {"owned_by", "palimpsest"}};
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

// The endpoints that run the model: each reads its form of request, and answers in its form.
void add_generation(Http& http, const std::shared_ptr<Service>& service, const ServerOptions& options) {
  // Clients of different keys share no cache.
  const auto answer = [service, options](CompletionRequest request, std::unique_ptr<ReplyForm> form, const In& in,
                                         Out& out) {
    request.request.scope = number_of_key(in, options.api_keys);
    complete(service, std::move(request), std::move(form), options, in, out);
  };
  const auto generates = [&](const char* path, auto respond) {
    http.Post(path, guarded(service, [service, respond](const In& in, Out& out) {
                if (service->closed())
                  throw ApiError(503, "server_error", "the server is shutting down: try another, or again later", "",
                                 "shutting_down");
                respond(in, out);
              }));
  };
  for (const bool chat : {false, true})
    generates(chat ? "/v1/chat/completions" : "/v1/completions", [service, chat, answer](const In& in, Out& out) {
      ReplyHead head = reply_head(*service, chat, chat ? "chatcmpl-" : "cmpl-");
      CompletionRequest request = parse_completion(parse_json(in.body), chat, service->model());
      auto form = completions_form(std::move(head), request.request.top_logprobs >= 0, request.include_usage);
      answer(std::move(request), std::move(form), in, out);
    });
  for (const char* path : {"/v1/embeddings", "/embeddings"})
    generates(path, [service, options](const In& in, Out& out) { embed(*service, options, in, out); });
  generates("/api/embed", [service, options](const In& in, Out& out) { embed_for_ollama(*service, options, in, out); });
  generates("/v1/responses", [service, answer, keys = options.api_keys](const In& in, Out& out) {
    ReplyHead head = reply_head(*service, true, "resp_");
    const Json body = parse_json(in.body);
    Fields fields(body);
    const int scope = number_of_key(in, keys);
    const std::string previous = fields.text("previous_response_id", "");
    ChatOfResponse chat =
        chat_of_response(body, previous.empty() ? Json::array() : service->responses().get(previous, scope));
    CompletionRequest request = parse_completion(chat.body, true, service->model());
    std::function<void(const Json&)> keep;
    if (fields.boolean("store", true))
      keep = [service, scope, id = head.id, messages = std::move(chat.messages)](const Json& output) {
        Json all = messages;
        add_items(output, "output", all);
        service->responses().put(id, scope, all);
      };
    answer(std::move(request), responses_form(std::move(head), body, std::move(keep)), in, out);
  });
  for (const bool chat : {false, true})
    generates(chat ? "/api/chat" : "/api/generate", [service, chat, answer](const In& in, Out& out) {
      reply_head(*service, chat, "ollama-");
      const OllamaRequest asked = read_ollama(parse_json(in.body), chat, service->model());
      CompletionRequest request = parse_completion(asked.body, asked.chat, service->model());
      answer(std::move(request), ollama_form(service->model().name, chat), in, out);
    });
}

}  // namespace

void add_routes(Http& http, const std::shared_ptr<Service>& service, const ServerOptions& options) {
  http.set_pre_routing_handler(
      [service, keys = options.api_keys, origin = options.cors_origin](const In& in, Out& out) {
        log_begin();
        const std::string id = new_id("req-");
        log_fields()["request_id"] = id;
        out.set_header("X-Request-Id", id);
        const bool from_page = allow_origin(origin, in, out);
        if (from_page && in.method == "OPTIONS") {
          answer_preflight(in, out);
          return Http::HandlerResponse::Handled;
        }
        if (keys.empty() || in.path == "/health" || in.path == "/") return Http::HandlerResponse::Unhandled;
        if (number_of_key(in, keys) > 0) return Http::HandlerResponse::Unhandled;
        refuse({401, "authentication_error", "this server requires an API key: Authorization: Bearer KEY", "",
                "invalid_api_key"},
               out);
        return Http::HandlerResponse::Handled;
      });
  // These must not throw: httplib calls some of them outside of its try blocks.
  http.set_exception_handler([](const In&, Out& out, const std::exception_ptr& thrown) {
    without_throwing([&] {
      try {
        std::rethrow_exception(thrown);
      } catch (...) {
        refuse(current_error(), out);
      }
    });
  });
  const auto refuse_status = [](const In& in, Out& out) {
    if (!out.body.empty()) return;
    static const std::set<std::string> get = {"/",          "/v1/methods",  "/health",        "/metrics",
                                              "/v1/models", "/v1/sessions", "/props",         "/slots",
                                              "/api/tags",  "/api/version", "/tokenizer_info"};
    static const std::set<std::string> post = {
        "/tokenize",     "/detokenize",    "/apply-template", "/v1/completions", "/v1/chat/completions",
        "/v1/responses", "/v1/embeddings", "/embeddings",     "/api/chat",       "/api/generate",
        "/api/embed"};
    if (out.status == 404 && (get.contains(in.path) || post.contains(in.path))) {
      out.set_header("Allow", get.contains(in.path) ? "GET" : "POST");
      out.status = 405;
    }
    if (out.status == 404 && in.path.starts_with("/v1/sessions/")) {
      out.set_header("Allow", in.path.ends_with("/memory") ? "GET" : "DELETE");
      out.status = 405;
    }
    refuse(error_of_status(out.status), out);
  };
  http.set_error_handler(
      [refuse_status](const In& in, Out& out) { without_throwing([&] { refuse_status(in, out); }); });
  http.set_logger([quiet = options.quiet](const In& in, const Out& out) {
    without_throwing([&] { log_end(in.method, in.path, out.status, quiet); });
  });

  const auto get = [&](const char* path, auto handler) { http.Get(path, guarded(service, handler)); };
  const auto post = [&](const char* path, auto handler) { http.Post(path, guarded(service, handler)); };
  const auto remove = [&](const char* path, auto handler) { http.Delete(path, guarded(service, handler)); };
  const long long created = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());

  get("/health", [service](const In&, Out& out) {
    if (service->failed()) throw ApiError(500, "server_error", "the scheduler stopped: see the log");
    if (service->closed()) throw ApiError(503, "server_error", "the server is shutting down", "", "shutting_down");
    out.set_content(R"({"status":"ok"})", kJson);
  });
  get("/metrics", [service](const In&, Out& out) {
    out.set_content(service->metrics()->text(service->scheduler().load(), service->model().name),
                    "text/plain; version=0.0.4; charset=utf-8");
  });
  get("/v1/models", [service, created](const In&, Out& out) {
    out.set_content(dump({{"object", "list"}, {"data", Json::array({model_json(service->model(), created)})}}), kJson);
  });
  get(R"(/v1/models/(.+))", [service, created](const In& in, Out& out) {
    if (in.matches[1] != service->model().name)
      throw ApiError(404, "invalid_request_error",
                     fmt::format("there is no model '{}': this is '{}'", in.matches[1].str(), service->model().name),
                     "model", "model_not_found");
    out.set_content(dump(model_json(service->model(), created)), kJson);
  });
  get("/", page);
  get("/v1/methods", list_methods);
  get("/v1/sessions", [service](const In&, Out& out) {
    out.set_content(dump({{"object", "list"}, {"data", service->sessions().list()}}), kJson);
  });
  get(R"(/v1/sessions/(.+)/memory)", [service](const In& in, Out& out) { session_memory(*service, in, out); });
  remove(R"(/v1/sessions/(.+))", [service](const In& in, Out& out) {
    const std::string name = in.matches[1];
    if (!Sessions::is_name(name))
      fail_field("session", "this is no session's name: GET /v1/sessions lists those there are");
    service->sessions().remove(name);
    out.set_content(dump({{"id", name}, {"object", "session"}, {"deleted", true}}), kJson);
  });
  post("/tokenize", [service](const In& in, Out& out) { tokenize(*service, in, out); });
  post("/detokenize", [service](const In& in, Out& out) { detokenize(*service, in, out); });
  post("/apply-template", [service](const In& in, Out& out) { apply_template(*service, in, out); });
  get("/api/tags", [service](const In&, Out& out) { ollama_tags(*service, out); });
  get("/api/version", [](const In&, Out& out) { out.set_content(dump({{"version", version()}}), kJson); });
  get("/tokenizer_info", [service](const In&, Out& out) { tokenizer_info(*service, out); });
  get("/props", [service](const In&, Out& out) { props(*service, out); });
  get("/slots", [service](const In&, Out& out) { slots(*service, out); });
  add_generation(http, service, options);
}

}  // namespace palimpsest
