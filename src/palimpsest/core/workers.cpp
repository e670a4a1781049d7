#include "palimpsest/core/workers.h"

#include <cassert>

namespace palimpsest {

Workers::Workers(int threads) {
  assert(threads >= 1);
  for (int t = 1; t < threads; ++t) others_.emplace_back([this] { serve(); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  started_.notify_all();
  for (auto& thread : others_) thread.join();
}

void Workers::take_part(std::unique_lock<std::mutex>& lock) {
  ++busy_;
  while (next_ < count_) {
    const int index = next_++;
    lock.unlock();
    (*body_)(index);
    lock.lock();
  }
  if (--busy_ == 0) finished_.notify_all();
}

void Workers::run(int count, const std::function<void(int)>& body) {
  if (others_.empty() || count <= 1) {
    for (int i = 0; i < count; ++i) body(i);
    return;
  }
  std::unique_lock lock(mutex_);
  body_ = &body;
  next_ = 0;
  count_ = count;
  started_.notify_all();
  take_part(lock);
  finished_.wait(lock, [this] { return busy_ == 0; });
  count_ = 0;
}

void Workers::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    started_.wait(lock, [this] { return stop_ || next_ < count_; });
    if (stop_) return;
    take_part(lock);
  }
}

}  // namespace palimpsest
