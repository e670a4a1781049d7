// Parallel loops for work beside the model's graph, which has threads of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
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
  // body(index) once for every index below `count`, in any order, on any thread; returns when all are done. If `body`
  // throws, no further index is begun, and what was thrown first is thrown here. One loop at a time. Allocates nothing.
  template <typename Body>
  void run(int count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(count, {[](void* b, int index) { (*static_cast<Plain*>(b))(index); },
                const_cast<std::remove_const_t<Plain>*>(std::addressof(body))});
  }

 private:
  struct Loop {
    void (*call)(void* body, int index) = nullptr;
    void* body = nullptr;
  };
  void run(int count, const Loop& loop);
  void serve();
  void take_indices() noexcept;

  std::mutex mutex_;
  std::condition_variable started_, finished_;
  Loop loop_;
  int count_ = 0, busy_ = 0;      // busy: threads in the loop, without the caller
  unsigned long long loops_ = 0;  // so far
  bool open_ = false;             // threads may join the loop
  bool stop_ = false;
  std::exception_ptr failure_;  // of the loop
  std::atomic<int> next_ = 0;   // index
  std::vector<std::thread> others_;
};

}  // namespace palimpsest
