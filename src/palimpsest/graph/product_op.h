// Products of weights in panels (matmul/panels.h) as two custom operators: one rounds a matrix of activations, the
// other multiplies. Products of the same activations share the first.
#pragma once

#include <ggml.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "palimpsest/matmul/panels.h"

namespace palimpsest {

// The products of one graph, which holds on to it as long as it runs.
class ProductOps {
 public:
  static constexpr std::size_t kNodes = 2;  // that a product adds at most

  // x: f32 [columns, tokens], rows contiguous. Returns f32 [rows, tokens].
  ggml_tensor* multiply(ggml_context* context, const Panels& weights, ggml_tensor* x);

 private:
  struct Product {
    const Panels* weights;
    // Counts work units taken, over all runs: each run takes as many as there are, and one more a thread that finds
    // none.
    std::atomic<std::int64_t> taken{0};
  };
  static void quantize(ggml_tensor* out, int thread, int threads, void*);
  static void run(ggml_tensor* out, int thread, int threads, void* product);

  std::deque<Product> products_;  // never move
  std::unordered_map<const ggml_tensor*, ggml_tensor*> quantized_;
};

}  // namespace palimpsest
