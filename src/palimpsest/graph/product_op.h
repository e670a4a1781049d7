// Products of weights in panels (matmul/panels.h) as two custom operators: one quantizes the activations, the other
// multiplies. Products of the same activations share the first.
#pragma once

#include <ggml.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "palimpsest/matmul/panels.h"

namespace palimpsest {

// The products of one graph; must outlive its runs.
class ProductOps {
 public:
  static constexpr std::size_t kNodes = 2;  // max that a product adds

  // x: f32 [columns, tokens], rows contiguous. Returns f32 [rows, tokens].
  ggml_tensor* multiply(ggml_context* context, const Panels& weights, ggml_tensor* x);

 private:
  struct Product {
    const Panels* weights;
    // Work units taken over all runs. Each run takes all units, plus one per thread: the one that is out of range.
    std::atomic<std::int64_t> taken{0};
  };
  static void quantize(ggml_tensor* out, int thread, int threads, void*);
  static void run(ggml_tensor* out, int thread, int threads, void* product);

  std::deque<Product> products_;  // never move
  std::unordered_map<const ggml_tensor*, ggml_tensor*> quantized_;
};

}  // namespace palimpsest
