// Rotary positions as stock ggml operators, by cosines and sines that the host computed in double precision.
// (ggml_rope takes 32-bit positions and multiplies f32 angles: it drifts on a long stream.)
//
// Rotation is by halves here: x * cos + swap(x) * sin, where swap exchanges the two halves and the first half's sines
// are negative. A model that pairs neighbours has its queries and keys re-laid once, before anything else; a dot
// product does not care.
#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <vector>

#include "palimpsest/attention/attention.h"

namespace palimpsest {

struct RopeRows {  // one row a token, over all dimensions: those that do not rotate have cosine 1 and sine 0
  ggml_tensor *cos = nullptr, *sin = nullptr;
};

// Inputs for `count` tokens: [head_dim, 1, count].
RopeRows new_rope_rows(ggml_context* context, const AttentionShape& shape, int count);
// Spreads RopeFrequencies rows over all dimensions.
void spread_rows(const AttentionShape& shape, const float* cos_sin, int count, std::vector<float>& cos,
                 std::vector<float>& sin);

// x [head_dim, heads, tokens] by neighbours -> by halves.
ggml_tensor* neighbours_to_halves(ggml_context* context, ggml_tensor* x, int dims);
// x [head_dim, ...], f32, contiguous; the rotate's rows are broadcast over it.
ggml_tensor* rotated(ggml_context* context, ggml_tensor* x, const RopeRows& rope, int dims);

// The rows of all ranks, kept on the device: late rotation looks them up there. Grows, never recomputed.
class RankTable {
 public:
  explicit RankTable(ggml_backend_t backend) : backend_(backend) {}
  // Rows 0 .. count - 1 of `rows` are known.
  void reserve(const AttentionShape& shape, const float* rows, int count);
  const RopeRows& rows() const { return rows_; }  // [head_dim, ranks]
  std::uint64_t generation() const { return generation_; }

 private:
  ggml_backend_t backend_;
  ggml_context_ptr context_;
  ggml_backend_buffer_ptr buffer_;
  RopeRows rows_;
  int known_ = 0;
  std::uint64_t generation_ = 0;
  std::vector<float> cos_, sin_;
};

}  // namespace palimpsest
