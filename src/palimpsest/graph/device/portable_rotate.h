// Rotary positions as stock ggml operators, with cosines and sines that the host computes in double precision.
// (ggml_rope takes 32-bit positions and f32 angles: it loses precision on long streams. Where all rows are rotated by
// the same angles, it serves: its frequency factors are the inverse angles, and its position is 1.)
//
// Rotation is by halves: x * cos + swap(x) * sin, where swap exchanges the two halves and the first half's sines are
// negative. If a model pairs neighbours, the dimensions of its queries and keys are permuted first; dot products do not
// change.
#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <vector>

#include "palimpsest/attention/attention.h"
#include "palimpsest/model/backend.h"

namespace palimpsest {

struct RopeRows {
  // One row per token, over all dimensions: un-rotated ones have cosine 1 and sine 0.
  ggml_tensor *cos = nullptr, *sin = nullptr;
  // Instead, one rotation of all rows: f32 [pairs], inverse angles; i32 [1]: 1.
  ggml_tensor *inverse = nullptr, *one = nullptr;
  float magnitude = 1;  // of that rotation
  explicit operator bool() const { return cos != nullptr || inverse != nullptr; }
};

// Expands RopeFrequencies rows to all dimensions.
void expand_rows(const AttentionShape& shape, const float* cos_sin, int count, std::vector<float>& cos,
                 std::vector<float>& sin);

// A RopeFrequencies row -> [pairs] inverse angles.
void invert_angles(const AttentionShape& shape, const float* cos_sin, std::vector<float>& inverse);

// x [head_dim, heads, tokens]: permutes dimensions from neighbouring pairs to halves.
ggml_tensor* neighbours_to_halves(ggml_context* context, ggml_tensor* x, int dims);
// x [head_dim, ...], f32, contiguous; the rows of `rope` are broadcast over it.
ggml_tensor* rotated(ggml_context* context, ggml_tensor* x, const RopeRows& rope, int dims);

// The cosines and sines of all ranks, stored on the device, for rotation on read. Grows, never recomputed.
class RankTable {
 public:
  explicit RankTable(ggml_backend_t backend) : backend_(backend) {}
  // Uploads rows up to count - 1 of `rows` [count].
  void reserve(const AttentionShape& shape, const float* rows, int count);
  const RopeRows& rows() const { return rows_; }  // [head_dim, ranks]
  std::uint64_t generation() const { return generation_; }

 private:
  ggml_backend_t backend_;
  ggml_context_ptr context_;
  DeviceBuffer buffer_;
  RopeRows rows_;
  int known_ = 0;
  std::uint64_t generation_ = 0;
  std::vector<float> cos_, sin_;
};

}  // namespace palimpsest
