#include "research/speed/three_step.h"

#include <cmath>
#include <random>

#include "palimpsest/model/backend.h"

namespace palimpsest::bench {

ThreeStep::ThreeStep(int tokens, int head_dim, int threads)
    : tokens_(tokens),
      context_(ggml_init(
          {.mem_size = ggml_tensor_overhead() * 16 + ggml_graph_overhead(), .mem_buffer = nullptr, .no_alloc = true})),
      backend_(make_backend(find_device("cpu"), threads)),
      sums_(static_cast<std::size_t>(tokens)) {
  ggml_context* const c = context_.get();
  ggml_tensor* const q = ggml_new_tensor_2d(c, GGML_TYPE_F32, head_dim, tokens);
  ggml_tensor* const k = ggml_new_tensor_2d(c, GGML_TYPE_F16, head_dim, tokens);
  ggml_tensor* const mask = ggml_new_tensor_2d(c, GGML_TYPE_F16, tokens, tokens);
  ggml_tensor* const scores = ggml_mul_mat(c, k, q);
  weights_ = ggml_soft_max_ext_inplace(c, scores, mask, 1 / std::sqrt(static_cast<float>(head_dim)), 0);
  graph_ = ggml_new_graph(c);
  ggml_build_forward_expand(graph_, weights_);
  buffer_.reset(ggml_backend_alloc_ctx_tensors(c, backend_.get()));

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto width = static_cast<std::size_t>(head_dim) * static_cast<std::size_t>(tokens);
  std::vector<float> rows(width);
  for (float& x : rows) x = normal(random);
  ggml_backend_tensor_set(q, rows.data(), 0, ggml_nbytes(q));
  std::vector<ggml_fp16_t> halves(width);
  for (std::size_t i = 0; i < width; ++i) halves[i] = ggml_fp32_to_fp16(rows[width - 1 - i]);
  ggml_backend_tensor_set(k, halves.data(), 0, ggml_nbytes(k));
  const ggml_fp16_t hidden = ggml_fp32_to_fp16(-INFINITY), seen = ggml_fp32_to_fp16(0);
  std::vector<ggml_fp16_t> causal(static_cast<std::size_t>(tokens));
  for (int i = 0; i < tokens; ++i) {
    for (int j = 0; j < tokens; ++j) causal[static_cast<std::size_t>(j)] = j <= i ? seen : hidden;
    ggml_backend_tensor_set(mask, causal.data(), static_cast<std::size_t>(i) * mask->nb[1], mask->nb[1]);
  }
}

void ThreeStep::run_head(Team& team) {
  ggml_backend_graph_compute(backend_.get(), graph_);
  const float* const rows = static_cast<const float*>(weights_->data);
  team.run([&](int thread) {  // each thread sums its own columns
    const int share = tokens_ / team.threads(), first = thread * share;
    const int last = thread == team.threads() - 1 ? tokens_ : first + share;
    for (int j = first; j < last; ++j) sums_[static_cast<std::size_t>(j)] = 0;
    for (int i = 0; i < tokens_; ++i) {
      const float* const row = rows + static_cast<std::ptrdiff_t>(i) * tokens_;
      for (int j = first; j < std::min(last, i + 1); ++j) sums_[static_cast<std::size_t>(j)] += row[j];
    }
  });
}

}  // namespace palimpsest::bench
