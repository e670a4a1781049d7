#include "palimpsest/core/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace palimpsest {
namespace {

using Clock = std::chrono::steady_clock;

// A step's loops follow within microseconds; waking a sleeping thread takes some tens of them.
constexpr auto kSpinForLoop = std::chrono::microseconds(200);
// Of the caller, for indices that others hold: if one of them has lost its core, it gets this one.
constexpr auto kSpinForEnd = std::chrono::microseconds(50);
constexpr int kSpinsPerLook = 64;  // at the clock

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether `ready` is true before `longest` has passed.
template <typename Ready>
bool spin(Clock::duration longest, const Ready& ready) {
  const auto end = Clock::now() + longest;
  do {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (Clock::now() < end);
  return false;
}

std::uint32_t generation_of(std::uint64_t next) {
  return static_cast<std::uint32_t>(next >> 32);
}

}  // namespace

struct alignas(64) ThreadPool::Thread {
  std::atomic<std::uint32_t> sleeps = 0;
  std::thread thread;

  void wake() {
    if (sleeps.load() != 0 && sleeps.exchange(0) != 0) sleeps.notify_one();
  }
};

ThreadPool::ThreadPool(int threads) : used_(threads), size_(threads), others_(new Thread[threads - 1]) {
  try {
    for (int i = 0; i + 1 < size_; ++i) others_[i].thread = std::thread([this, i] { live(i); });
  } catch (...) {
    ends_ = true;
    for (int i = 0; i + 1 < size_ && others_[i].thread.joinable(); ++i) others_[i].wake(), others_[i].thread.join();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  ends_ = true;
  for (int i = 0; i + 1 < size_; ++i) others_[i].wake(), others_[i].thread.join();
}

void ThreadPool::use(int threads) {
  used_.store(std::clamp(threads, 1, size_), std::memory_order_relaxed);
}

void ThreadPool::live(int me) {
  for (std::uint32_t seen = 0; wait_for_loop(others_[me], seen);) {
    seen = generation_of(next_.load(std::memory_order_acquire));
    if (me + 1 < used_.load(std::memory_order_relaxed)) take_indices();
  }
}

bool ThreadPool::wait_for_loop(Thread& thread, std::uint32_t seen) {
  const auto ready = [&] { return generation_of(next_.load()) != seen || ends_.load(); };
  if (!spin(kSpinForLoop, ready)) {
    // The caller publishes a loop, then looks who sleeps; a thread says that it sleeps, then looks for a loop.
    thread.sleeps.store(1);
    if (ready()) thread.sleeps.store(0);
    while (thread.sleeps.load() != 0) thread.sleeps.wait(1);
  }
  return !ends_.load();
}

// An index is taken only if the loop is still the one whose function was read: a loop does not end, and its function is
// not replaced, before all its indices have returned. A thread that is late, with `next` of a loop that has ended, and
// sees a part of the following loop, sees also that next_ was closed: its exchange fails.
void ThreadPool::take_indices() {
  std::uint64_t next = next_.load(std::memory_order_acquire);
  for (;;) {
    const auto index = static_cast<std::uint32_t>(next);
    const std::uint32_t count = count_.load(std::memory_order_acquire);
    const auto call = call_.load(std::memory_order_acquire);
    void* const body = body_.load(std::memory_order_acquire);
    if (index >= count) return;
    if (!next_.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    try {
      if (!failed_.load(std::memory_order_relaxed)) call(body, static_cast<int>(index));
    } catch (...) {
      if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
    if (done_.fetch_add(1) + 1 == count && caller_sleeps_.load() != 0 && caller_sleeps_.exchange(0) != 0)
      caller_sleeps_.notify_one();
    next = next_.load(std::memory_order_acquire);
  }
}

void ThreadPool::wait_for_end(std::uint32_t count) {
  const auto ended = [&] { return done_.load() == count; };
  while (!spin(kSpinForEnd, ended)) {
    caller_sleeps_.store(1);
    if (ended()) caller_sleeps_.store(0);
    while (caller_sleeps_.load() != 0) caller_sleeps_.wait(1);
  }
}

void ThreadPool::run_loop(int count, const Loop& loop) {
  const int threads = std::min(this->threads(), count);
  if (threads <= 1) {
    for (int i = 0; i < count; ++i) loop.call(loop.body, i);
    return;
  }
  const std::uint32_t generation = generation_of(next_.load(std::memory_order_relaxed));
  // Closed: no index is below a count.
  next_.store(std::uint64_t{generation} << 32 | UINT32_MAX, std::memory_order_relaxed);
  call_.store(loop.call, std::memory_order_release);
  body_.store(loop.body, std::memory_order_release);
  count_.store(static_cast<std::uint32_t>(count), std::memory_order_release);
  done_.store(0, std::memory_order_relaxed);
  next_.store(std::uint64_t{generation + 1} << 32);
  for (int i = 0; i + 1 < threads; ++i) others_[i].wake();
  take_indices();
  wait_for_end(static_cast<std::uint32_t>(count));
  if (failed_.exchange(false)) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace palimpsest
