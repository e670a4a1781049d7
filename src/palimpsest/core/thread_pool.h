// Threads for the loops of a model's step and between steps. Indices are taken from a counter by whoever is there: a
// thread that lost its core delays nothing but the indices that it holds. Threads that wait spin for microseconds, then
// sleep, so that others can have the core.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>

#include "palimpsest/core/workers.h"

namespace palimpsest {

class ThreadPool final : public Workers {
 public:
  explicit ThreadPool(int threads);  // the caller of run() and threads - 1 others; throws std::system_error
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const override { return used_.load(std::memory_order_relaxed); }
  // How many of them run the next loops: at least one, at most all. Requires: no loop is running.
  void use(int threads);

 private:
  struct Thread;

  void run_loop(int count, const Loop& loop) override;
  void live(int me);
  void take_indices();
  bool wait_for_loop(Thread& thread, std::uint32_t seen);  // false: the pool ends
  void wait_for_end(std::uint32_t count);

  // The loop that runs. Written before its generation is published; read before an index of that generation is taken.
  std::atomic<void (*)(void*, int)> call_ = nullptr;
  std::atomic<void*> body_ = nullptr;
  std::atomic<std::uint32_t> count_ = 0;
  std::atomic<int> used_;
  alignas(64) std::atomic<std::uint64_t> next_ = 0;  // generation << 32 | next index
  alignas(64) std::atomic<std::uint32_t> done_ = 0;  // indices that have returned
  std::atomic<std::uint32_t> caller_sleeps_ = 0;
  std::atomic<bool> failed_ = false, ends_ = false;
  std::exception_ptr failure_;  // of the thread that set failed_
  int size_;
  std::unique_ptr<Thread[]> others_;  // [size_ - 1]
};

}  // namespace palimpsest
