// Products of weights in panels (matmul/panels.h) as custom operators: one converts the activations, the other
// multiplies. Products of the same activations share the first.
#pragma once

#include <ggml.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>

#include "palimpsest/core/workers.h"
#include "palimpsest/matmul/panels.h"

namespace palimpsest {

// The rows of a mixture of experts, one per slot of a token, sorted by expert: an expert multiplies contiguous rows.
struct ExpertOrder {
  ggml_tensor* sorted_rows;  // i32
  int experts;
  std::int64_t rows;  // slots * tokens
};

// The products of one graph; must outlive its runs.
class ProductOps {
 public:
  static constexpr std::size_t kNodes = 2;  // max that a product adds

  // `pool`: its threads work where ggml calls an operator from one thread; outlives it. nullptr: ggml's threads only.
  explicit ProductOps(Workers* pool = nullptr) : pool_(pool) {}

  // x: f32 [columns, tokens], rows contiguous. Returns f32 [rows, tokens].
  ggml_tensor* multiply(ggml_context* context, const Panels& weights, ggml_tensor* x);

  // chosen: i32 [slots, tokens], the experts of each token.
  ExpertOrder order(ggml_context* context, ggml_tensor* chosen, int experts);
  // Multiplies the row of each token, x: f32 [columns, tokens], by the matrices of its experts. `weights` has those of
  // all experts, one after another. Returns f32 [rows of an expert, order.rows], sorted by expert.
  ggml_tensor* multiply_experts(ggml_context* context, const Panels& weights, ggml_tensor* x, const ExpertOrder& order);
  // The same with x: [columns, order.rows], sorted by expert.
  ggml_tensor* multiply_sorted(ggml_context* context, const Panels& weights, ggml_tensor* x, const ExpertOrder& order);
  // Adds to each row the bias of its expert. x: [columns, order.rows], sorted by expert; bias: f32 [columns, experts].
  ggml_tensor* add_expert_bias(ggml_context* context, ggml_tensor* x, ggml_tensor* bias, const ExpertOrder& order);
  // Adds the rows of each token in the order of its slots. x: [columns, order.rows], sorted by expert; weights:
  // f32 [1, slots, tokens].
  // Returns f32 [columns, tokens].
  ggml_tensor* combine(ggml_context* context, ggml_tensor* x, ggml_tensor* weights, const ExpertOrder& order);

 private:
  struct Product {
    const Panels* weights;
    int experts;
    Workers* pool;
    std::atomic<std::int64_t> taken{0};  // work units of this run; 0 between runs

    // Calls work(first, last) for ranges of units below `units`, until they are used up. Of few tokens, a range is a
    // part of what is left: few exchanges between cores, long reads, and short ranges at the end. `threads`: of this
    // run; each calls it once.
    template <class Work>
    void share(std::int64_t units, std::int64_t tokens, int threads, const Work& work);
  };
  static void convert(ggml_tensor* out, int thread, int threads, void* product);
  static void multiply_all(ggml_tensor* out, int thread, int threads, void* product);
  static void sort(ggml_tensor* out, int thread, int threads, void* product);
  static void multiply_by_expert(ggml_tensor* out, int thread, int threads, void* product);
  static void add_bias(ggml_tensor* out, int thread, int threads, void* product);
  static void add(ggml_tensor* out, int thread, int threads, void* product);
  static void convert_part(ggml_tensor* out, int part, int parts, const Product& product);
  static void multiply_experts_part(ggml_tensor* out, int parts, Product& product);
  static void add_bias_part(ggml_tensor* out, int part, int parts, int experts);
  static void add_part(ggml_tensor* out, int part, int parts, int experts);

  // The rows of x as activations, or with an order, its tokens' rows sorted by expert.
  ggml_tensor* converted(ggml_context* context, const Panels& weights, ggml_tensor* x, const ExpertOrder* order);
  ggml_tensor* multiply_converted(ggml_context* context, const Panels& weights, ggml_tensor* activations,
                                  const ExpertOrder& order);

  Workers* pool_;
  std::deque<Product> products_;  // never move
  // By x, order and form.
  std::map<std::tuple<const ggml_tensor*, const ggml_tensor*, ActivationForm>, ggml_tensor*> converted_;
};

}  // namespace palimpsest
