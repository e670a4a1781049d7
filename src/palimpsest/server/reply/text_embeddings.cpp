#include "palimpsest/server/reply/text_embeddings.h"

#include <httplib.h>

#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "palimpsest/server/log.h"
#include "palimpsest/server/request/common_fields.h"
#include "palimpsest/server/request/prompt_field.h"
#include "palimpsest/server/service.h"

namespace palimpsest {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kSubmitted = 16;  // texts of one request in the scheduler: others' requests come in between

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

void check_embeds(const ServedModel& model) {
  if (model.pooling == Pooling::kNone)
    throw ApiError(400, "invalid_request_error",
                   "this server gives no embeddings: restart it with --pooling mean or --pooling last");
}

// Texts beyond the context need a method that evicts.
void check_lengths(const EmbeddingInput& input, const char* name, int context) {
  for (const SharedTokens& one : input.texts)
    if (std::ssize(one) > context)
      fail_field(name,
                 "a text has {} tokens, the model's context is {}: divide the text, or give a \"cache\" that evicts",
                 one.size(), context);
}

}  // namespace

EmbeddingInput read_texts(JsonFields& fields, const char* name, Service& service) {
  const ServedModel& model = service.model();
  check_embeds(model);
  const Hyperparameters& hyper = service.scheduler().decoder().model().hyper();
  if (const long long width = fields.integer("dimensions", hyper.width, 1, 1 << 30); width != hyper.width)
    fail_field("dimensions", "'dimensions' is not supported: embeddings of this model have {} dimensions", hyper.width);
  // Every token of a text is kept, unless the request has a method.
  const Json* cache = fields.take("cache");
  EmbeddingInput out{.texts = {},
                     .method = cache == nullptr ? parse_method("full") : parse_cache(*cache, model.method)};
  const Json* input = fields.take(name);
  if (input == nullptr) input = fields.take("content");  // llama-server's name
  if (input == nullptr) fail_field(name, "'{}' is missing", name);
  if (input->is_array() && input->empty()) fail_field(name, "'{}' is an empty list", name);
  if (is_list_of_prompts(*input)) {
    if (input->size() > kMaxInputs)
      fail_field(name, "'{}' has {} texts: give at most {}", name, input->size(), kMaxInputs);
    for (const Json& one : *input) out.texts.emplace_back(read_prompt(one, name, model, false));
  } else {
    out.texts.emplace_back(read_prompt(*input, name, model, false));
  }
  if (cache == nullptr) check_lengths(out, name, hyper.trained_context);
  return out;
}

EmbeddingInput read_texts(const std::vector<std::string>& texts, const char* name, Service& service) {
  check_embeds(service.model());
  EmbeddingInput out{.texts = {}, .method = parse_method("full")};
  for (const std::string& text : texts) out.texts.emplace_back(read_prompt(Json(text), name, service.model(), false));
  check_lengths(out, name, service.scheduler().decoder().model().hyper().trained_context);
  return out;
}

std::vector<std::vector<float>> text_embeddings(Service& service, const ServerOptions& options, EmbeddingInput asked,
                                                const httplib::Request& http, ReplyUsage& usage) {
  Request request;
  request.method = asked.method;
  request.max_tokens = 0;
  request.pooling = service.model().pooling;
  request.reuse = Reuse::kNothing;
  if (options.timeout > 0ms) request.deadline = Clock::now() + options.timeout;
  const auto inbox = std::make_shared<EmbeddingInbox>();
  std::vector<std::vector<float>> vectors(asked.texts.size());
  Service::Ticket ticket(service);
  std::size_t submitted = 0, done = 0;
  while (done < vectors.size()) {
    while (submitted < vectors.size() && submitted < done + kSubmitted) {
      Request one = request;
      one.prompt = asked.texts[submitted];
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

}  // namespace palimpsest
