#include "palimpsest/core/workers.h"

#include <cassert>
#include <utility>

namespace palimpsest {

Workers::Workers(int threads) {
  assert(threads >= 1);
  for (int t = 1; t < threads; ++t) threads_.emplace_back([this] { serve(); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  started_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Workers::take_indices() noexcept {
  try {
    for (int index; (index = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) loop_.call(loop_.body, index);
  } catch (...) {
    next_.store(count_, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void Workers::run(int count, const Loop& loop) {
  if (threads_.empty() || count <= 1) {
    for (int i = 0; i < count; ++i) loop.call(loop.body, i);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    loop_ = loop;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    ++loops_;
    open_ = true;
  }
  started_.notify_all();
  take_indices();
  std::unique_lock lock(mutex_);
  open_ = false;  // threads that wake up from now on do not join
  finished_.wait(lock, [this] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Workers::serve() {
  std::unique_lock lock(mutex_);
  for (unsigned long long seen = 0;;) {
    started_.wait(lock, [&] { return stop_ || (open_ && loops_ != seen); });
    if (stop_) return;
    seen = loops_;
    ++busy_;
    lock.unlock();
    take_indices();
    lock.lock();
    if (--busy_ == 0) finished_.notify_all();
  }
}

}  // namespace palimpsest
