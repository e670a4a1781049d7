// Loops in threads that ThreadSanitizer sees: it does not see those of the graph (tests/tsan.supp).
#pragma once

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "palimpsest/core/workers.h"

namespace palimpsest::testing {

class ThreadWorkers final : public Workers {
 public:
  explicit ThreadWorkers(int threads) : threads_(threads), begin_(threads), end_(threads) {
    for (int t = 1; t < threads; ++t)
      others_.emplace_back([this] {
        for (begin_.arrive_and_wait(); !stop_; begin_.arrive_and_wait()) take_indices();
      });
  }
  ~ThreadWorkers() override {
    stop_ = true;
    begin_.arrive_and_wait();
    for (auto& thread : others_) thread.join();
  }
  int threads() const override { return threads_; }

 private:
  void run_loop(int count, const Loop& loop) override {
    loop_ = loop;
    count_ = count;
    next_ = 0;
    begin_.arrive_and_wait();
    take_indices();
  }
  void take_indices() {
    for (int i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) loop_.call(loop_.body, i);
    end_.arrive_and_wait();
  }

  int threads_;
  std::barrier<> begin_, end_;
  Loop loop_;
  int count_ = 0;
  std::atomic<int> next_ = 0;
  bool stop_ = false;
  std::vector<std::thread> others_;
};

}  // namespace palimpsest::testing
