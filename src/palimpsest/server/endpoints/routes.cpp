#include "palimpsest/server/endpoints/routes.h"

#include <httplib.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <exception>
#include <regex>

#include "palimpsest/server/apis/reply_writers.h"
#include "palimpsest/server/endpoints/endpoints.h"
#include "palimpsest/server/endpoints/requested_model.h"
#include "palimpsest/server/http/access.h"
#include "palimpsest/server/http/web_guard.h"
#include "palimpsest/server/log.h"

namespace palimpsest {
namespace {

using Http = httplib::Server;
using In = httplib::Request;
using Out = httplib::Response;

// In the form of the API that the request belongs to.
void refuse(const ApiError& error, const In& in, Out& out) {
  out.status = error.status();
  if (error.status() == 499) {  // a status of logs; a client that closed only its writing side reads the answer
    out.status = 400;
    log_fields()["status"] = 499;
  }
  if (error.status() == 503) out.set_header("Retry-After", "1");
  if (error.status() == 401) out.set_header("WWW-Authenticate", "Bearer");
  log_fields()["error"] = error.log_text();
  const Json json = in.path.starts_with("/api/") ? Json{{"error", error.what()}}
                    : is_anthropic(in)           ? anthropic_error(error, out.get_header_value("X-Request-Id"))
                                                 : error.json();
  out.set_content(dump(json), "application/json");
}

// When the queue will be empty, if nobody joins it: a client that returns then begins at once. 1 to 60 seconds:
// OpenAI's clients ignore larger numbers.
std::string retry_after(const Service& service) {
  return std::to_string(static_cast<int>(std::clamp(std::ceil(service.seconds_until_begun()), 1.0, 60.0)));
}

// For callbacks whose exceptions would end the process. Loses at most one log line or one error's text.
template <typename Action>
void without_throwing(Action action) noexcept {
  try {
    action();
  } catch (...) {
  }
}

// kRun: the model reads texts; kWrite: it also writes, which encoders refuse. Both are refused while the server shuts
// down.
enum class Needs { kNoModel, kModel, kRun, kWrite };

struct Route {
  Endpoint endpoint;
  void (*handler)(const HttpCall& call);
  Needs needs = Needs::kModel;
};

const std::vector<Route>& routes() {
  static const std::vector<Route> all = {
      {{"POST", "/v1/chat/completions"}, complete_chat, Needs::kWrite},
      {{"POST", "/v1/chat/completions/input_tokens"}, count_chat_tokens},
      {{"POST", "/v1/completions"}, complete_text, Needs::kWrite},
      {{"POST", "/completion"}, llama_completion, Needs::kWrite},
      {{"POST", "/infill"}, llama_infill, Needs::kWrite},
      {{"POST", "/v1/responses"}, create_response, Needs::kWrite},
      {{"POST", "/v1/responses/input_tokens"}, count_response_tokens},
      {{"GET", "/v1/responses/NAME"}, show_response, Needs::kNoModel},
      {{"DELETE", "/v1/responses/NAME"}, remove_response, Needs::kNoModel},
      {{"POST", "/v1/messages"}, create_message, Needs::kWrite},
      {{"POST", "/v1/messages/count_tokens"}, count_message_tokens},
      {{"POST", "/v1/embeddings"}, embed, Needs::kRun},
      {{"POST", "/v1/rerank"}, rerank, Needs::kRun},
      {{"POST", "/tokenize"}, tokenize},
      {{"POST", "/detokenize"}, detokenize},
      {{"POST", "/apply-template"}, apply_template},
      {{"GET", "/v1/models"}, list_models, Needs::kNoModel},
      {{"GET", "/v1/models/NAME", false}, show_model, Needs::kNoModel},
      {{"POST", "/models/load"}, load_model, Needs::kNoModel},
      {{"POST", "/models/unload"}, unload_model, Needs::kNoModel},
      {{"GET", "/v1/methods"}, list_methods},
      {{"GET", "/v1/sessions"}, list_sessions, Needs::kNoModel},
      {{"GET", "/v1/sessions/NAME/memory"}, show_session_memory},
      {{"POST", "/v1/sessions/NAME/edit"}, edit_session, Needs::kWrite},
      {{"POST", "/close_session"}, close_session, Needs::kNoModel},
      {{"GET", "/health"}, show_health, Needs::kNoModel},
      {{"GET", "/metrics"}, show_metrics},
      {{"GET", "/props"}, show_properties},
      {{"GET", "/slots"}, list_slots},
      {{"GET", "/tokenizer_info"}, show_tokenizer},
      {{"GET", "/", false}, show_page, Needs::kNoModel},
      {{"DELETE", "/v1/sessions/NAME"}, remove_session, Needs::kNoModel},
      {{"POST", "/api/chat"}, ollama_chat, Needs::kWrite},
      {{"POST", "/api/generate"}, ollama_generate, Needs::kWrite},
      {{"POST", "/api/embed"}, ollama_embed, Needs::kRun},
      {{"POST", "/api/embeddings"}, ollama_embeddings, Needs::kRun},
      {{"GET", "/api/tags"}, ollama_tags, Needs::kNoModel},
      {{"GET", "/api/ps"}, ollama_ps, Needs::kNoModel},
      {{"POST", "/api/show"}, ollama_show},
      {{"GET", "/api/version"}, ollama_version, Needs::kNoModel},
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

void add_route(Http& http, const Route& route, const std::shared_ptr<ModelHost>& host, const ServerOptions& options,
               std::time_t started) {
  const auto handler = [&route, host, options, started](const In& in, Out& out) {
    std::shared_ptr<Service> service = host->only();
    try {
      if (route.needs >= Needs::kRun && host->closed())
        throw ApiError(503, "server_error", "the server is shutting down: try another, or again later", "",
                       "shutting_down");
      if (service == nullptr && route.needs != Needs::kNoModel) service = requested_model(*host, in);
      if (route.needs == Needs::kWrite) service->scheduler();  // throws
      route.handler({*host, service, options, in, out, started});
    } catch (...) {
      const ApiError error = current_error();
      if (error.status() == 429 && service != nullptr) {
        ++service->metrics()->rejected;
        out.set_header("Retry-After", retry_after(*service));
      }
      refuse(error, in, out);
    }
  };
  const std::string pattern = pattern_of(route.endpoint.path);
  if (route.endpoint.method == "GET")
    http.Get(pattern, handler);
  else if (route.endpoint.method == "POST")
    http.Post(pattern, with_body(handler, options.max_body));
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

bool is_anthropic(const httplib::Request& in) {
  std::string_view path = in.path;
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  return path == "/messages" || path.starts_with("/messages/") || in.has_header("anthropic-version");
}

void add_routes(Http& http, const std::shared_ptr<ModelHost>& host, const ServerOptions& options) {
  http.set_pre_routing_handler([options](const In& in, Out& out) {
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

  const std::time_t started = std::time(nullptr);
  for (const Route& route : routes()) add_route(http, route, host, options, started);
}

std::vector<Endpoint> endpoints() {
  std::vector<Endpoint> all;
  for (const Route& route : routes()) all.push_back(route.endpoint);
  return all;
}

}  // namespace palimpsest
