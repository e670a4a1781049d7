#include "palimpsest/server/embeddings.h"

#include <httplib.h>

#include <bit>
#include <charconv>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "palimpsest/server/completion_request.h"
#include "palimpsest/server/fields.h"
#include "palimpsest/server/log.h"
#include "palimpsest/server/ollama.h"
#include "palimpsest/server/prompts.h"
#include "palimpsest/server/reply.h"
#include "palimpsest/server/service.h"

namespace palimpsest {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxInputs = 2048;  // as in OpenAI's API
constexpr std::size_t kSubmitted = 16;    // texts of one request in the scheduler: others' requests come in between

struct EmbeddingRequest {
  std::vector<SharedTokens> inputs;
  Method method;
};

struct Embedded {
  std::size_t input = 0;
  std::vector<float> vector;
  Finish finish = Finish::kCancelled;
  Usage usage;
};

// Finished texts on their way from the scheduler's thread.
class EmbeddingInbox {
 public:
  void put(Embedded one) {
    const std::lock_guard lock(mutex_);
    finished_.push_back(std::move(one));
    arrived_.notify_one();
  }
  std::optional<Embedded> take(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, patience, [&] { return !finished_.empty(); })) return std::nullopt;
    Embedded one = std::move(finished_.front());
    finished_.pop_front();
    return one;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Embedded> finished_;
};

class EmbeddingListener final : public RequestListener {
 public:
  EmbeddingListener(std::shared_ptr<EmbeddingInbox> inbox, std::size_t input) : inbox_(std::move(inbox)) {
    one_.input = input;
  }
  bool written(const SampledToken&) override { return false; }
  void embedded(std::span<const float> vector) override { one_.vector.assign(vector.begin(), vector.end()); }
  void finished(Finish finish, const Usage& usage) override {
    one_.finish = finish;
    one_.usage = usage;
    inbox_->put(std::move(one_));
  }

 private:
  std::shared_ptr<EmbeddingInbox> inbox_;
  Embedded one_;
};

// Every token of a text is kept, unless the request has a method.
Method read_method(Fields& fields, const ServedModel& model) {
  const Json* cache = fields.take("cache");
  return cache == nullptr ? parse_method("full") : parse_cache(*cache, model.method);
}

EmbeddingRequest read_request(Fields& fields, Service& service) {
  const ServedModel& model = service.model();
  if (model.pooling == Pooling::kNone)
    throw ApiError(400, "invalid_request_error",
                   "this server gives no embeddings: restart it with --pooling mean or --pooling last");
  const Hyperparameters& hyper = service.scheduler().decoder().model().hyper();
  if (const long long width = fields.integer("dimensions", hyper.width, 1, 1 << 30); width != hyper.width)
    fail_field("dimensions", "'dimensions' is not supported: embeddings of this model have {} dimensions", hyper.width);
  const bool has_method = fields.take("cache") != nullptr;
  EmbeddingRequest out{.inputs = {}, .method = read_method(fields, model)};
  const Json* input = fields.take("input");
  if (input == nullptr) fail_field("input", "'input' is missing");
  if (input->is_array() && input->empty()) fail_field("input", "'input' is an empty list");
  if (is_list_of_prompts(*input)) {
    if (input->size() > kMaxInputs)
      fail_field("input", "'input' has {} texts: give at most {}", input->size(), kMaxInputs);
    for (const Json& one : *input) out.inputs.emplace_back(read_prompt(one, "input", model, false));
  } else {
    out.inputs.emplace_back(read_prompt(*input, "input", model, false));
  }
  for (const SharedTokens& one : out.inputs)
    if (!has_method && std::ssize(one) > hyper.trained_context)
      fail_field("input",
                 "a text has {} tokens, the model's context is {}: divide the text, or give a \"cache\" that evicts",
                 one.size(), hyper.trained_context);
  return out;
}

// The vectors, in the order of the texts.
std::vector<std::vector<float>> vectors_of(Service& service, const ServerOptions& options, EmbeddingRequest asked,
                                           const httplib::Request& http, ReplyUsage& usage) {
  Request request;
  request.method = asked.method;
  request.max_tokens = 0;
  request.pooling = service.model().pooling;
  request.reuse = Reuse::kNothing;
  if (options.timeout > 0ms) request.deadline = Clock::now() + options.timeout;
  const auto inbox = std::make_shared<EmbeddingInbox>();
  std::vector<std::vector<float>> vectors(asked.inputs.size());
  Service::Ticket ticket(service);
  std::size_t submitted = 0, done = 0;
  while (done < vectors.size()) {
    while (submitted < vectors.size() && submitted < done + kSubmitted) {
      Request one = request;
      one.prompt = asked.inputs[submitted];
      try {
        ticket.submit(std::move(one), std::make_shared<EmbeddingListener>(inbox, submitted));
      } catch (const QueueFull&) {
        if (submitted == done) throw;
        break;  // again when one of ours is done
      }
      ++submitted;
    }
    if (auto one = inbox->take(100ms)) {
      if (one->finish != Finish::kEnd) throw error_of(one->finish, one->usage);
      usage.prompt_tokens += one->usage.prompt_tokens;
      usage.evicted_tokens += one->usage.evicted;
      vectors[one->input] = std::move(one->vector);
      ++done;
    } else if (service.failed()) {
      throw ApiError(500, "server_error", "internal error: see the server's log");
    }
    if (done < vectors.size() && http.is_connection_closed())
      throw ApiError(499, "client_closed_request", "the client disconnected");
  }
  log_fields()["texts"] = vectors.size();
  log_fields()["prompt_tokens"] = usage.prompt_tokens;
  log_fields()["evicted"] = usage.evicted_tokens;
  return vectors;
}

// The shortest decimal that reads back as `x`.
double shortest(float x) {
  char text[32];
  double out = x;
  const auto end = std::to_chars(text, text + sizeof text, x).ptr;
  std::from_chars(text, end, out);
  return out;
}

Json numbers(const std::vector<float>& vector) {
  Json out = Json::array();
  for (const float x : vector) out.push_back(shortest(x));
  return out;
}

// Little-endian f32 in base64.
std::string base64(const std::vector<float>& vector) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  const auto put = [&](std::uint32_t byte) {
    bits = bits << 8 | byte;
    for (count += 8; count >= 6; count -= 6) out += kDigits[bits >> (count - 6) & 63];
  };
  for (const float x : vector)
    for (int shift = 0; shift < 32; shift += 8) put(std::bit_cast<std::uint32_t>(x) >> shift & 0xFF);
  if (count > 0) out += kDigits[bits << (6 - count) & 63];
  out.append((4 - out.size() % 4) % 4, '=');
  return out;
}

}  // namespace

void embed(Service& service, const ServerOptions& options, const httplib::Request& in, httplib::Response& out) {
  const Json body = parse_json(in.body);
  Fields fields(body);
  fields.ignore({"user", "metadata", "priority", "request_id"});
  check_model(fields.text("model", service.model().name), service.model());
  const std::string format = fields.text("encoding_format", "float");
  if (format != "float" && format != "base64")
    fail_field("encoding_format", "'encoding_format' is '{}': float and base64 are supported", format);
  EmbeddingRequest asked = read_request(fields, service);
  fields.end();
  ReplyUsage usage;
  const auto vectors = vectors_of(service, options, std::move(asked), in, usage);
  Json data = Json::array();
  for (std::size_t i = 0; i < vectors.size(); ++i)
    data.push_back({{"object", "embedding"},
                    {"index", i},
                    {"embedding", format == "base64" ? Json(base64(vectors[i])) : numbers(vectors[i])}});
  const Json answer = {{"object", "list"},
                       {"data", std::move(data)},
                       {"model", service.model().name},
                       {"usage",
                        {{"prompt_tokens", usage.prompt_tokens},
                         {"total_tokens", usage.prompt_tokens},
                         {"evicted_tokens", usage.evicted_tokens}}}};
  out.set_content(dump(answer), "application/json");
}

void embed_for_ollama(Service& service, const ServerOptions& options, const httplib::Request& in,
                      httplib::Response& out) {
  const Json body = parse_json(in.body);
  Fields fields(body);
  fields.ignore({"truncate", "options", "keep_alive"});
  check_model(without_latest(fields.text("model", service.model().name)), service.model());
  EmbeddingRequest asked = read_request(fields, service);
  fields.end();
  ReplyUsage usage;
  const auto start = Clock::now();
  Json embeddings = Json::array();
  for (const auto& vector : vectors_of(service, options, std::move(asked), in, usage))
    embeddings.push_back(numbers(vector));
  const Json answer = {{"model", service.model().name},
                       {"embeddings", std::move(embeddings)},
                       {"total_duration", std::chrono::nanoseconds(Clock::now() - start).count()},
                       {"load_duration", 0},
                       {"prompt_eval_count", usage.prompt_tokens}};
  out.set_content(dump(answer), "application/json");
}

}  // namespace palimpsest
