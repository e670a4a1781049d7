#include "palimpsest/server/connections.h"

#include <chrono>
#include <utility>

namespace palimpsest {
namespace {

constexpr std::size_t kKept = 4;  // idle threads that stay
constexpr std::chrono::seconds kIdleTime{3};

}  // namespace

bool Connections::enqueue(std::function<void()> serve) {
  Threads ended;
  try {
    Threads fresh(1);
    const std::lock_guard lock(mutex_);
    if (stopped_ || waiting_.size() >= max_waiting_) return false;
    waiting_.push_back(std::move(serve));  // from here on nothing throws
    if (idle_ < waiting_.size() && threads_.size() < max_threads_) {
      const auto self = fresh.begin();
      threads_.splice(threads_.end(), fresh);
      try {
        *self = std::thread(&Connections::run, this, self);
      } catch (...) {  // no thread: one of the others serves it, if there is one
        threads_.erase(self);
        if (threads_.empty()) waiting_.pop_back();
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

void Connections::run(Threads::iterator self) {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    const bool woken = changed_.wait_for(lock, kIdleTime, [&] { return stopped_ || !waiting_.empty(); });
    --idle_;
    if (!waiting_.empty()) {
      std::function<void()> serve = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      try {
        serve();
      } catch (...) {  // its connection is closed
      }
      serve = nullptr;
      lock.lock();
    } else if (stopped_ || (!woken && threads_.size() > kKept)) {
      break;
    }
  }
  if (!stopped_) ended_.splice(ended_.end(), threads_, self);  // else shutdown() has it
}

void Connections::shutdown() {
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
