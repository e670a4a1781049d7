// Parallel loops for work beside the model's graph, which has threads of its own.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace palimpsest {

// A team that shares the indices of a loop. Waiting members sleep: a loop should be worth 0.1 ms at least.
class Workers {
 public:
  explicit Workers(int threads);  // the caller is one of them: 1 starts no thread
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const { return static_cast<int>(others_.size()) + 1; }
  // body(index) once for every index below `count`, in any order, on any thread; returns when all are done. `body` does
  // not throw. One loop at a time.
  void run(int count, const std::function<void(int)>& body);

 private:
  void serve();
  void take_part(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable started_, finished_;
  const std::function<void(int)>* body_ = nullptr;
  int next_ = 0, count_ = 0, busy_ = 0;
  bool stop_ = false;
  std::vector<std::thread> others_;
};

}  // namespace palimpsest
