#include "palimpsest/load/load_run.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace palimpsest {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// State shared by run_load() and the listeners, which may outlive it.
struct Exchange {
  Clock::time_point start = Clock::now();
  std::mutex mutex;  // guards everything except `answers`: only its listener accesses an answer until it has ended
  std::condition_variable changed;
  int running = 0, done = 0;  // sent and not ended; ended
  std::vector<LoadAnswer> answers;
  std::vector<std::size_t> ended;  // answers that run_load() has not seen
  std::vector<LoadState> states;
  std::exception_ptr broken;

  double now() const { return std::chrono::duration<double>(Clock::now() - start).count(); }
};

class Listener final : public LoadListener {
 public:
  Listener(std::shared_ptr<Exchange> exchange, std::size_t index)
      : exchange_(std::move(exchange)), index_(index), answer_(exchange_->answers[index]) {}
  void token() override { answer_.token_times.push_back(exchange_->now()); }
  void end(const LoadAnswer& counts) override {
    answer_.end = exchange_->now();
    answer_.prompt_tokens = counts.prompt_tokens;
    answer_.tokens = counts.tokens;
    answer_.evicted = counts.evicted;
    answer_.cached = counts.cached;
    answer_.complete = counts.complete && !answer_.token_times.empty();
    answer_.error = counts.error;
    if (!answer_.complete && answer_.error.empty()) answer_.error = "an answer without a token";
    const std::lock_guard lock(exchange_->mutex);
    --exchange_->running;
    ++exchange_->done;
    exchange_->ended.push_back(index_);
    exchange_->changed.notify_all();
  }

 private:
  std::shared_ptr<Exchange> exchange_;
  std::size_t index_;
  LoadAnswer& answer_;
};

constexpr auto kPollInterval = 50ms;

// The last state is that of the end.
void watch(const std::stop_token& stop, LoadTarget& target, Exchange& exchange) {
  try {
    for (bool ended = false;; ended = stop.stop_requested()) {
      LoadState state = target.state();
      state.at = exchange.now();
      exchange.states.push_back(state);
      if (ended) break;
      std::this_thread::sleep_for(kPollInterval);
    }
  } catch (...) {
    const std::lock_guard lock(exchange.mutex);
    exchange.broken = std::current_exception();
  }
}

// Which request is sent next, and when.
class Sessions {
 public:
  Sessions(const std::vector<LoadRequest>& requests, int max) : requests_(requests), max_(max) {
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (begins_session(requests, i)) unbegun_.push_back(i);
    std::ranges::reverse(unbegun_);
  }
  void ended(std::size_t index, double now) {
    if (index + 1 < requests_.size() && !begins_session(requests_, index + 1))
      thinking_.emplace_back(now + requests_[index + 1].think, index + 1);
    else
      --open_;
  }
  bool done() const { return unbegun_.empty() && thinking_.empty(); }
  // nullopt: none before an answer ends.
  std::optional<std::pair<double, std::size_t>> next() const {
    std::optional<std::pair<double, std::size_t>> first;
    if (!thinking_.empty()) first = *std::ranges::min_element(thinking_);
    if (unbegun_.empty() || (max_ > 0 && open_ >= max_)) return first;
    const std::pair begins(requests_[unbegun_.back()].at, unbegun_.back());
    return first ? std::min(*first, begins) : begins;
  }
  void sent(std::size_t index) {
    if (std::erase_if(thinking_, [&](const auto& one) { return one.second == index; }) > 0) return;
    unbegun_.pop_back();
    ++open_;
  }

 private:
  const std::vector<LoadRequest>& requests_;
  int max_, open_ = 0;
  std::vector<std::size_t> unbegun_;  // the first requests of sessions, the earliest last
  std::vector<std::pair<double, std::size_t>> thinking_;
};

// The target's cache bytes after the load; waits up to a limit for its last step to end.
long long bytes_after(LoadTarget& target) {
  LoadState state = target.state();
  for (int attempt = 0; attempt < 40 && state.running > 0; ++attempt) {
    std::this_thread::sleep_for(kPollInterval);
    state = target.state();
  }
  return state.cache_bytes;
}

}  // namespace

LoadReport run_load(LoadTarget& target, const std::vector<LoadRequest>& requests, int concurrency,
                    const std::function<bool(int)>& go_on) {
  const auto exchange = std::make_shared<Exchange>();
  exchange->answers.resize(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i)
    exchange->answers[i].token_times.reserve(static_cast<std::size_t>(requests[i].output));
  std::jthread watcher([&](const std::stop_token& stop) { watch(stop, target, *exchange); });

  Sessions sessions(requests, concurrency);
  std::vector<std::size_t> sent;
  bool stopped = false;
  {
    std::unique_lock lock(exchange->mutex);
    while (!exchange->broken && (exchange->running > 0 || !exchange->ended.empty() || (!sessions.done() && !stopped))) {
      for (const std::size_t index : std::exchange(exchange->ended, {}))
        sessions.ended(index, exchange->answers[index].end);
      if (!stopped && !go_on(exchange->done)) {
        stopped = true;
        lock.unlock();
        target.cancel();
        lock.lock();
        continue;
      }
      const auto next = stopped ? std::nullopt : sessions.next();
      const double wait = next ? next->first - exchange->now() : 1;
      if (wait > 0) {
        exchange->changed.wait_for(
            lock, std::min<std::chrono::duration<double>>(std::chrono::duration<double>(wait), kPollInterval));
        continue;
      }
      const std::size_t index = next->second;
      exchange->answers[index].sent = exchange->now();
      exchange->answers[index].repeated = requests[index].repeated;
      ++exchange->running;
      sessions.sent(index);
      sent.push_back(index);
      lock.unlock();
      target.send(requests[index], std::make_shared<Listener>(exchange, index));
      lock.lock();
    }
  }
  watcher.request_stop();
  watcher.join();
  // Moves the error out of the exchange, which listeners may still hold: none of them must free it while the caller
  // reads it.
  if (const auto broken = std::exchange(exchange->broken, nullptr)) std::rethrow_exception(broken);

  LoadReport report;
  for (const std::size_t index : sent) report.answers.push_back(std::move(exchange->answers[index]));
  report.states = std::move(exchange->states);
  for (const LoadAnswer& answer : report.answers) report.seconds = std::max(report.seconds, answer.end);
  if (!report.answers.empty()) report.seconds -= report.answers.front().sent;
  report.peak = target.peak();
  for (const LoadState& state : report.states) {
    report.peak.running = std::max(report.peak.running, state.running);
    report.peak.waiting = std::max(report.peak.waiting, state.waiting);
    report.peak.cache_bytes = std::max(report.peak.cache_bytes, state.cache_bytes);
    report.peak.kept_bytes = std::max(report.peak.kept_bytes, state.kept_bytes);
  }
  report.cache_bytes_after = bytes_after(target);
  return report;
}

}  // namespace palimpsest
