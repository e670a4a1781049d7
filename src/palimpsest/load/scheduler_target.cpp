#include "palimpsest/load/scheduler_target.h"

namespace palimpsest {
namespace {

class Adapter final : public RequestListener {
 public:
  explicit Adapter(std::shared_ptr<LoadListener> listener) : listener_(std::move(listener)) {}
  bool written(const SampledToken&) override {
    listener_->token();
    return true;
  }
  void finished(Finish finish, const Usage& usage) override {
    LoadAnswer counts;
    counts.prompt_tokens = usage.prompt_tokens;
    counts.tokens = usage.tokens;
    counts.evicted = usage.evicted;
    counts.cached = usage.cached;
    counts.complete = finish == Finish::kLength;
    counts.error = finish == Finish::kCancelled ? "cancelled" : usage.error;
    listener_->end(counts);
  }

 private:
  std::shared_ptr<LoadListener> listener_;
};

}  // namespace

SchedulerTarget::SchedulerTarget(std::shared_ptr<Decoder> decoder, std::shared_ptr<const Vocabulary> vocabulary,
                                 const SchedulerOptions& options, const Method& method)
    : vocabulary_(std::move(vocabulary)), method_(method), scheduler_(std::move(decoder), vocabulary_, options) {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    try {
      scheduler_.run(stop);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      broken_ = std::current_exception();
    }
  });
}

SchedulerTarget::~SchedulerTarget() = default;

void SchedulerTarget::send(const LoadRequest& request, std::shared_ptr<LoadListener> listener) {
  Request submitted{.prompt = request.prompt, .method = method_, .max_tokens = request.output, .ignore_end = true};
  submitted.sampler.temperature = 0;
  if (request.session >= 0) submitted.reuse = Reuse::kHistories;
  try {
    if (submitted.prompt.empty() && vocabulary_ == nullptr)
      fail("a synthetic model has no vocabulary to read a prompt with: give lists of tokens, or input_len");
    if (submitted.prompt.empty())
      submitted.prompt = vocabulary_->tokenize(request.text, /*add_bos=*/true, /*special=*/false);
    const std::uint64_t id = scheduler_.submit(std::move(submitted), std::make_shared<Adapter>(listener));
    const std::lock_guard lock(mutex_);
    ids_.push_back(id);
  } catch (const Error& error) {
    LoadAnswer counts;
    counts.error = error.what();
    listener->end(counts);
  }
}

LoadState SchedulerTarget::state() {
  {
    const std::lock_guard lock(mutex_);
    if (broken_) std::rethrow_exception(broken_);
  }
  const SchedulerLoad load = scheduler_.load();
  return {.running = load.running,
          .waiting = load.waiting,
          .cache_bytes = static_cast<long long>(load.used_bytes),
          .kept_bytes = static_cast<long long>(load.prefix_bytes)};
}

void SchedulerTarget::cancel() {
  const std::lock_guard lock(mutex_);
  for (const std::uint64_t id : ids_) scheduler_.cancel(id);
}

LoadState SchedulerTarget::peak() {
  const SchedulerLoad load = scheduler_.load();
  return {.running = load.running_peak, .cache_bytes = static_cast<long long>(load.peak_bytes)};
}

}  // namespace palimpsest
