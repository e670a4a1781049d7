// Parallel loops outside the model's graph, which has its own threads.
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

// A thread pool that shares the indices of a loop. Idle threads sleep: a loop should take at least 0.1 ms.
class Workers {
 public:
  explicit Workers(int threads);  // includes the caller: 1 starts no thread
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const { return static_cast<int>(threads_.size()) + 1; }
  // Calls body(index) once for every index below `count`, in any order, on any thread; returns when all are done. If
  // `body` throws, starts no further index and rethrows the first exception. One loop at a time. Allocates nothing.
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
  int count_ = 0, busy_ = 0;      // busy: threads in the loop, excluding the caller
  unsigned long long loops_ = 0;  // so far
  bool open_ = false;             // threads may join the loop
  bool stop_ = false;
  std::exception_ptr failure_;  // of the loop
  std::atomic<int> next_ = 0;   // the next index
  std::vector<std::thread> threads_;
};

}  // namespace palimpsest
