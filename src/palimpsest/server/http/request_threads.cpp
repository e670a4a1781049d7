#include "palimpsest/server/http/request_threads.h"

#include <chrono>
#include <utility>

namespace palimpsest {
namespace {

constexpr std::size_t kKept = 4;  // idle threads that stay
constexpr std::chrono::seconds kIdleTime{3};

}  // namespace

bool RequestThreads::enqueue(std::function<void()> serve, bool urgent) {
  Threads ended;
  try {
    Threads fresh(1);
    const std::lock_guard lock(mutex_);
    auto& queue = urgent ? urgent_ : waiting_;
    if (stopped_ || queue.size() >= max_waiting_) return false;
    queue.push_back(std::move(serve));  // from here on nothing throws
    if (idle_ < waiting_.size() + urgent_.size() && threads_.size() < max_threads_ + (urgent ? kReserve : 0)) {
      const auto self = fresh.begin();
      threads_.splice(threads_.end(), fresh);
      try {
        *self = std::thread(&RequestThreads::run, this, self);
      } catch (...) {  // no thread: one of the others serves it, if there is one
        threads_.erase(self);
        if (threads_.empty()) queue.pop_back();
      }
      if (threads_.empty()) return false;
    }
    ended.swap(ended_);
  } catch (...) {  // no memory
    return false;
  }
  changed_.notify_one();
  for (std::thread& thread : ended) thread.join();
  return true;
}

void RequestThreads::run(Threads::iterator self) {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    const bool woken = changed_.wait_for(lock, kIdleTime, [&] { return stopped_ || has_work(); });
    --idle_;
    if (has_work()) {
      const bool urgent = !urgent_.empty();
      auto& queue = urgent ? urgent_ : waiting_;
      std::function<void()> serve = std::move(queue.front());
      queue.pop_front();
      serving_ += urgent ? 0 : 1;
      lock.unlock();
      try {
        serve();
      } catch (...) {  // its connection is closed
      }
      serve = nullptr;
      lock.lock();
      serving_ -= urgent ? 0 : 1;
    } else if (stopped_ || (!woken && threads_.size() > kKept)) {
      break;
    }
  }
  if (!stopped_) ended_.splice(ended_.end(), threads_, self);  // else shut_down() has it
}

void RequestThreads::shut_down() {
  Threads all;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    all.splice(all.end(), threads_);
    all.splice(all.end(), ended_);
  }
  changed_.notify_all();
  for (std::thread& thread : all) thread.join();
}

}  // namespace palimpsest
