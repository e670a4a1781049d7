#include "palimpsest/load/http_target.h"

#include <httplib.h>

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

using Json = nlohmann::json;

struct Url {
  std::string host, path;  // "http://127.0.0.1:8080", "/v1"
};

Url parse_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme) || url.size() == kScheme.size())
    fail("'{}' is not a server URL: give one like http://127.0.0.1:8080", url);
  const std::size_t slash = url.find('/', kScheme.size());
  Url out{.host = url.substr(0, slash), .path = slash == std::string::npos ? "" : url.substr(slash)};
  while (out.path.ends_with('/')) out.path.pop_back();
  if (!out.path.ends_with("/v1")) out.path += "/v1";
  return out;
}

std::string error_message(const std::string& body) {
  const Json object = Json::parse(body, nullptr, false);
  if (object.is_object() && object.contains("error") && object["error"].is_object() &&
      object["error"].contains("message") && object["error"]["message"].is_string())
    return object["error"]["message"];
  return body.substr(0, 200);
}

// Parses server-sent events incrementally.
class Events {
 public:
  Events(LoadListener& listener, LoadAnswer& counts) : listener_(listener), counts_(counts) {}
  void take(std::string_view bytes) {
    pending_ += bytes;
    std::size_t from = 0;
    for (std::size_t end; (end = pending_.find('\n', from)) != std::string::npos; from = end + 1)
      line(std::string_view(pending_).substr(from, end - from));
    pending_.erase(0, from);
  }
  const std::string& rest() const { return pending_; }

 private:
  void line(std::string_view text) {
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (!text.starts_with("data:")) return;
    text.remove_prefix(5);
    if (text.find("[DONE]") != std::string_view::npos) {
      counts_.complete = counts_.error.empty();
      return;
    }
    const Json event = Json::parse(text, nullptr, false);
    if (!event.is_object()) return;
    if (event.contains("error")) {
      counts_.error = error_message(std::string(text));
      return;
    }
    if (event.contains("choices") && !event["choices"].empty()) {
      listener_.token();
      ++heard_;
      if (counts_.tokens < heard_) counts_.tokens = heard_;
    }
    if (event.contains("timings") && event["timings"].is_object())  // llama-server
      counts_.cached = event["timings"].value("cache_n", counts_.cached);
    if (!event.contains("usage") || !event["usage"].is_object()) return;
    const Json& usage = event["usage"];
    counts_.prompt_tokens = usage.value("prompt_tokens", 0LL);
    counts_.tokens = usage.value("completion_tokens", counts_.tokens);
    counts_.evicted = usage.value("evicted_tokens", 0LL);
    if (const auto details = usage.value("prompt_tokens_details", Json()); details.is_object())
      counts_.cached = details.value("cached_tokens", counts_.cached);
  }

  LoadListener& listener_;
  LoadAnswer& counts_;
  std::string pending_;
  long long heard_ = 0;
};

// The value of a metric with any labels; -1: not found.
double metric(const std::string& text, std::string_view name) {
  for (const std::string_view prefix : {"palimpsest_", "vllm:"}) {
    const std::string line = "\n" + std::string(prefix) + std::string(name);
    for (std::size_t at = 0; (at = text.find(line, at)) != std::string::npos; at += line.size()) {
      const char next = at + line.size() < text.size() ? text[at + line.size()] : '\n';
      if (next != '{' && next != ' ') continue;
      const std::size_t end = text.find('\n', at + 1);
      const std::size_t blank = text.rfind(' ', end);
      return std::strtod(text.c_str() + blank, nullptr);
    }
  }
  return -1;
}

}  // namespace

struct HttpTarget::Impl {
  Url url;
  httplib::Headers headers;
  std::chrono::milliseconds timeout{};
  std::atomic<bool> cancelled = false;
  bool has_metrics = true;
  std::mutex mutex;
  std::vector<std::jthread> threads;

  httplib::Client client() const {
    httplib::Client client(url.host);
    // Ten seconds, given as microseconds: with whole seconds Debian's cpp-httplib resolves the address by
    // getaddrinfo_a, whose glibc thread is unknown to ThreadSanitizer and crashes it.
    client.set_connection_timeout(0, 10'000'000);
    client.set_read_timeout(timeout);
    client.set_tcp_nodelay(true);
    client.set_default_headers(headers);
    return client;
  }
};

HttpTarget::HttpTarget(const HttpTargetOptions& options) : options_(options), impl_(std::make_unique<Impl>()) {
  impl_->url = parse_url(options_.base_url);
  impl_->timeout = std::chrono::milliseconds(static_cast<long long>(options_.timeout * 1000));
  if (!options_.api_key.empty()) impl_->headers.emplace("Authorization", "Bearer " + options_.api_key);
  const auto result = impl_->client().Get(impl_->url.path + "/models");
  if (!result) fail("{} does not answer ({}): is a server there?", impl_->url.host, to_string(result.error()));
  if (result->status != 200) fail("{}: {} {}", impl_->url.host, result->status, error_message(result->body));
  if (!options_.model.empty()) return;
  const Json models = Json::parse(result->body, nullptr, false);
  if (!models.is_object() || !models.contains("data") || !models["data"].is_array() || models["data"].empty() ||
      !models["data"][0].value("id", Json()).is_string())
    fail("{} names no model at {}/models: this is no server with OpenAI's API", impl_->url.host, impl_->url.path);
  options_.model = models["data"][0]["id"];
}

HttpTarget::~HttpTarget() = default;

void HttpTarget::send(const LoadRequest& request, std::shared_ptr<LoadListener> listener) {
  Json body = {{"model", options_.model},
               {"prompt", request.prompt.empty() ? Json(request.text) : Json(request.prompt)},
               {"max_tokens", request.output},
               {"temperature", 0},
               {"ignore_eos", true},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  if (!options_.cache.empty()) body["cache"] = options_.cache;
  httplib::Headers headers;
  if (request.session >= 0) {  // llama-server's field, and the header of routers for vLLM
    body["cache_prompt"] = true;
    headers.emplace("x-session-id", std::to_string(request.session));
  }
  const std::lock_guard lock(impl_->mutex);
  impl_->threads.emplace_back([impl = impl_.get(), listener, text = body.dump(), headers = std::move(headers)] {
    LoadAnswer counts;
    Events events(*listener, counts);
    httplib::Client client = impl->client();
    const auto result = client.Post(impl->url.path + "/completions", headers, text, "application/json",
                                    [&](const char* data, std::size_t size) {
                                      events.take({data, size});
                                      return !impl->cancelled;
                                    });
    if (impl->cancelled) {
      counts.error = "cancelled";
    } else if (!result) {
      counts.error = "the connection: " + to_string(result.error());
    } else if (result->status != 200) {
      counts.error = fmt::format("{}: {}", result->status, error_message(events.rest()));
    } else if (!counts.complete && counts.error.empty()) {
      counts.error = "the stream ended without [DONE]";
    }
    counts.complete = counts.complete && counts.error.empty();
    listener->end(counts);
  });
}

LoadState HttpTarget::state() {
  LoadState state;
  if (!impl_->has_metrics) return state;
  httplib::Client client = impl_->client();
  client.set_read_timeout(std::chrono::seconds(5));
  const auto result = client.Get(impl_->url.path.substr(0, impl_->url.path.size() - 3) + "/metrics");
  if (!result || result->status != 200) {
    impl_->has_metrics = static_cast<bool>(result) ? result->status != 404 : true;
    return state;
  }
  const std::string text = "\n" + result->body;
  state.running = static_cast<int>(metric(text, "num_requests_running"));
  state.waiting = static_cast<int>(metric(text, "num_requests_waiting"));
  state.cache_bytes = static_cast<long long>(metric(text, "kv_cache_bytes"));
  state.kept_bytes = static_cast<long long>(metric(text, "prefix_cache_bytes"));
  return state;
}

void HttpTarget::cancel() {
  impl_->cancelled = true;
}

}  // namespace palimpsest
