// A thread team with a spinning barrier, like ggml's.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace palimpsest::bench {

class Team {
 public:
  explicit Team(int threads) : threads_(threads) {
    for (int t = 1; t < threads; ++t) others_.emplace_back([this, t] { serve(t); });
  }
  ~Team() {
    stop_ = true;
    started_.fetch_add(1);
  }
  int threads() const { return threads_; }

  // job(thread) on every thread; returns when all are done.
  void run(const std::function<void(int)>& job) {
    job_ = &job;
    started_.fetch_add(1);
    job(0);
    barrier();
  }
  void barrier() {
    const int round = rounds_.load();
    if (arrived_.fetch_add(1) == threads_ - 1) {
      arrived_ = 0;
      rounds_.fetch_add(1);
      return;
    }
    for (int spins = 0; rounds_.load() == round; ++spins)
      if (spins > 10000) std::this_thread::yield();
  }

 private:
  void serve(int thread) {
    for (int seen = 0;;) {
      for (int spins = 0; started_.load() == seen; ++spins)
        if (spins > 10000) std::this_thread::yield();
      ++seen;
      if (stop_) return;
      (*job_)(thread);
      barrier();
    }
  }

  int threads_;
  std::atomic<bool> stop_{false};
  std::atomic<int> started_{0}, arrived_{0}, rounds_{0};
  const std::function<void(int)>* job_ = nullptr;
  std::vector<std::jthread> others_;
};

}  // namespace palimpsest::bench
