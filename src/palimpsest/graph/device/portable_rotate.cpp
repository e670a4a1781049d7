#include "palimpsest/graph/device/portable_rotate.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "palimpsest/core/error.h"

namespace palimpsest {

void expand_rows(const AttentionShape& shape, const float* cos_sin, int count, std::vector<float>& cos,
                 std::vector<float>& sin) {
  const std::size_t width = static_cast<std::size_t>(shape.head_dim);
  const int pairs = shape.rope_dims / 2;
  cos.assign(count * width, 1.0F);
  sin.assign(count * width, 0.0F);
  for (int i = 0; i < count; ++i) {
    const float* row = cos_sin + static_cast<std::ptrdiff_t>(i) * shape.rope_dims;
    float *c = cos.data() + i * width, *s = sin.data() + i * width;
    for (int p = 0; p < pairs; ++p) {
      c[p] = c[pairs + p] = row[p];
      s[p] = -row[pairs + p];
      s[pairs + p] = row[pairs + p];
    }
  }
}

void invert_angles(const AttentionShape& shape, const float* cos_sin, std::vector<float>& inverse) {
  const int pairs = shape.rope_dims / 2;
  inverse.clear();
  for (int p = 0; p < pairs; ++p)  // an angle of 0 becomes an infinite factor, and 1 / infinity is 0
    inverse.push_back(static_cast<float>(1 / std::atan2(double{cos_sin[pairs + p]}, double{cos_sin[p]})));
}

ggml_tensor* neighbours_to_halves(ggml_context* context, ggml_tensor* x, int dims) {
  const std::int64_t width = x->ne[0], heads = x->ne[1], tokens = x->ne[2];
  ggml_tensor* pairs = ggml_view_4d(context, x, 2, dims / 2, heads, tokens, 2 * x->nb[0], x->nb[1], x->nb[2], 0);
  ggml_tensor* halves =
      ggml_reshape_3d(context, ggml_cont(context, ggml_permute(context, pairs, 1, 0, 2, 3)), dims, heads, tokens);
  if (dims == width) return halves;
  ggml_tensor* rest = ggml_view_3d(context, x, width - dims, heads, tokens, x->nb[1], x->nb[2],
                                   static_cast<std::size_t>(dims) * x->nb[0]);
  return ggml_concat(context, halves, rest, 0);
}

ggml_tensor* rotated(ggml_context* context, ggml_tensor* x, const RopeRows& rope, int dims) {
  if (rope.inverse != nullptr) {
    ggml_tensor* rows = ggml_reshape_3d(context, x, x->ne[0], x->ne[1] * x->ne[2] * x->ne[3], 1);
    rows = ggml_rope_ext(context, rows, rope.one, rope.inverse, dims, GGML_ROPE_TYPE_NEOX, 0, 1, 1, 0, rope.magnitude,
                         0, 0);
    return ggml_reshape_4d(context, rows, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
  }
  const auto part = [&](std::int64_t first, std::int64_t count) {
    return ggml_view_4d(context, x, count, x->ne[1], x->ne[2], x->ne[3], x->nb[1], x->nb[2], x->nb[3],
                        static_cast<std::size_t>(first) * x->nb[0]);
  };
  ggml_tensor* swapped = ggml_concat(context, part(dims / 2, dims / 2), part(0, dims / 2), 0);
  if (dims < x->ne[0]) swapped = ggml_concat(context, swapped, part(dims, x->ne[0] - dims), 0);
  return ggml_add(context, ggml_mul(context, x, rope.cos), ggml_mul(context, swapped, rope.sin));
}

void RankTable::reserve(const AttentionShape& shape, const float* rows, int count) {
  if (count <= known_) return;
  if (rows_.cos == nullptr || count > rows_.cos->ne[1]) {
    const std::int64_t ranks = std::max<std::int64_t>(256, 2 * std::int64_t{count});
    context_.reset(ggml_init({2 * ggml_tensor_overhead(), nullptr, true}));
    if (!context_) fail("no memory for a table of {} ranks", ranks);
    rows_ = {ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, shape.head_dim, ranks),
             ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, shape.head_dim, ranks)};
    buffer_.reset(ggml_backend_alloc_ctx_tensors(context_.get(), backend_));
    if (!buffer_) {
      rows_ = {};
      fail("no memory on device {} for a table of {} ranks; give a smaller --budget", ggml_backend_name(backend_),
           ranks);
    }
    ++generation_;
    known_ = 0;
  }
  expand_rows(shape, rows + static_cast<std::ptrdiff_t>(known_) * shape.rope_dims, count - known_, cos_, sin_);
  const std::size_t offset = static_cast<std::size_t>(known_) * rows_.cos->nb[1];
  ggml_backend_tensor_set(rows_.cos, cos_.data(), offset, cos_.size() * sizeof(float));
  ggml_backend_tensor_set(rows_.sin, sin_.data(), offset, sin_.size() * sizeof(float));
  known_ = count;
}

}  // namespace palimpsest
