// Runs a graph on a thread pool instead of ggml's threads, which wait for each other after every operator. The caller
// computes ggml's operators; our custom operators hand their work to the pool (graph/in_parts.h), and ggml's
// operators on many tokens are cut into slices of tokens.
#pragma once

#include <ggml-cpp.h>

#include <memory>
#include <vector>

#include "palimpsest/core/thread_pool.h"

namespace palimpsest {

// Memory to compute slices of operators, one for each slice that runs at the same time.
class SliceMemory {
 public:
  explicit SliceMemory(int slices);
  ~SliceMemory();
  int slices() const;
  // Computes elements [first, last) of the dimension `dim` of an operator. Slices with different numbers may run at the
  // same time. false: ggml failed.
  bool compute(int slice, const ggml_tensor& whole, int dim, std::int64_t first, std::int64_t last);

 private:
  struct Slice;
  std::vector<Slice> slices_;
};

class PoolGraph {
 public:
  // Whether the pool has threads for all that is large in the graph: not for products of ggml (weights that have no
  // panels), which it runs on its own threads.
  static bool suits(ggml_cgraph* graph);

  // `graph` outlives it. Its tensors may move in memory between runs.
  explicit PoolGraph(ggml_cgraph* graph);
  // `caller`: a CPU backend of one thread.
  ggml_status run(ggml_backend_t caller, ThreadPool& pool, SliceMemory& memory);

 private:
  struct Item {  // one of the two
    ggml_cgraph* on_caller = nullptr;
    ggml_tensor* sliced = nullptr;
    int dim = 0;
  };
  ggml_cgraph* whole_;
  ggml_context_ptr context_;  // holds the graphs of items
  std::vector<Item> items_;   // empty: nothing is large enough to be sliced
};

}  // namespace palimpsest
