// Loops on the threads that compute the model's graphs. After a step those threads spin for a while, and other threads
// would compete with them for the cores: so a loop is a graph of one operator.
#pragma once

#include <ggml-cpp.h>

#include <atomic>
#include <exception>

#include "palimpsest/core/workers.h"

namespace palimpsest {

class GraphThreads final : public Workers {
 public:
  explicit GraphThreads(int threads);  // as the decoder's; throws Error
  GraphThreads(const GraphThreads&) = delete;
  GraphThreads& operator=(const GraphThreads&) = delete;

  int threads() const override { return threads_; }

 private:
  void run_loop(int count, const Loop& loop) override;
  void take_indices() noexcept;

  int threads_;
  ggml_backend_ptr backend_;
  ggml_context_ptr context_;
  ggml_cgraph* graph_ = nullptr;
  Loop loop_;
  int count_ = 0;
  std::atomic<int> next_ = 0;  // the next index
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;  // of the thread that set failed_
};

}  // namespace palimpsest
