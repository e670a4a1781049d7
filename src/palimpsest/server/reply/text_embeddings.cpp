#include "palimpsest/server/reply/text_embeddings.h"

#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "palimpsest/server/log.h"

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

// Waits with requests of others, and ends as they do.
std::vector<std::vector<float>> encode(const HttpCall& call, const std::vector<SharedTokens>& texts) {
  Service& service = *call.service;
  if (const int waiting = service.load().waiting; waiting >= service.options().max_queue)
    throw QueueFull(fmt::format("{} requests are waiting: try again later", waiting));
  const Service::Ticket ticket(service);
  const auto deadline = Clock::now() + call.options.timeout;
  return service.encoder()->encode(texts, [&] {
    call.check_waits();
    if (service.cancelled()) throw error_of(Finish::kCancelled, {});
    if (call.options.timeout > 0ms && Clock::now() > deadline) throw error_of(Finish::kDeadline, {});
  });
}

std::vector<std::vector<float>> embed_by_decoder(const HttpCall& call, const EmbeddingInput& input, ReplyUsage& usage) {
  Request request;
  request.method = input.method;
  request.max_tokens = 0;
  request.pooling = call.model().pooling;
  request.reuse = Reuse::kNothing;
  if (call.options.timeout > 0ms) request.deadline = Clock::now() + call.options.timeout;
  const auto inbox = std::make_shared<EmbeddingInbox>();
  std::vector<std::vector<float>> vectors(input.texts.size());
  Service::Ticket ticket(*call.service);
  std::size_t submitted = 0, done = 0;
  while (done < vectors.size()) {
    while (submitted < vectors.size() && submitted < done + kSubmitted) {
      Request one = request;
      one.prompt = input.texts[submitted];
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
    }
    if (done < vectors.size()) call.check_waits();
  }
  return vectors;
}

}  // namespace

std::vector<std::vector<float>> text_embeddings(const HttpCall& call, const EmbeddingInput& input, ReplyUsage& usage) {
  std::vector<std::vector<float>> vectors;
  if (call.service->encoder() != nullptr) {
    vectors = encode(call, input.texts);
    for (const SharedTokens& text : input.texts) usage.prompt_tokens += static_cast<long long>(text.size());
  } else {
    vectors = embed_by_decoder(call, input, usage);
  }
  log_fields()["texts"] = vectors.size();
  log_fields()["prompt_tokens"] = usage.prompt_tokens;
  log_fields()["evicted"] = usage.evicted_tokens;
  return vectors;
}

}  // namespace palimpsest
