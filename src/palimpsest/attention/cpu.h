// The fast path: Highway SIMD over tiles of 16 slots, K loaded once per query group, threads that ggml brings.
// Results do not depend on the number of threads: work is cut at fixed slots and joined in a fixed order.
#pragma once

#include <cstddef>

#include "palimpsest/attention/attention.h"

namespace palimpsest {

// Memory shared by the threads of one call; reused between layers and steps.
class AttentionScratch {
 public:
  AttentionScratch();
  ~AttentionScratch();
  AttentionScratch(const AttentionScratch&) = delete;
  AttentionScratch& operator=(const AttentionScratch&) = delete;
  void reserve(const AttentionStep& step, int threads);  // before the threads start; single-threaded
  std::size_t bytes() const;

 private:
  friend void attention_cpu(const AttentionStep&, AttentionScratch&, int, int);
  struct Impl;
  Impl* impl_;
};

// Every one of `threads` threads calls this with its own `thread`; returns when the whole layer is done by this
// thread's view (callers put a barrier after it, as ggml does after a node).
void attention_cpu(const AttentionStep& step, AttentionScratch& scratch, int thread, int threads);

}  // namespace palimpsest
