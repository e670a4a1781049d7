#include "palimpsest/core/vectors.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "palimpsest/core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/core/vectors.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;

// Dot products of `count` rows with x, or with themselves (x == nullptr): count sums at a time hide the latency of the
// additions.
template <int kCount>
HWY_INLINE void dot_some(const float* rows, std::int64_t stride, const float* x, std::size_t width, float* out) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<D> sum[kCount];
  for (auto& each : sum) each = hn::Zero(d);
  std::size_t k = 0;
  const auto add = [&](const auto& load) HWY_ATTR {
    const auto y = x == nullptr ? hn::Zero(d) : load(x + k);
    for (int i = 0; i < kCount; ++i) {
      const auto row = load(rows + i * stride + k);
      sum[i] = hn::MulAdd(row, x == nullptr ? row : y, sum[i]);
    }
  };
  for (; k + lanes <= width; k += lanes) add([&](const float* at) HWY_ATTR { return hn::LoadU(d, at); });
  if (k < width) add([&](const float* at) HWY_ATTR { return hn::LoadN(d, at, width - k); });
  for (int i = 0; i < kCount; ++i) out[i] = hn::ReduceSum(d, sum[i]);
}

void DotRows(const Rows& rows, const float* x, float* out) {
  const auto width = static_cast<std::size_t>(rows.width);
  int i = 0;
  for (; i + 4 <= rows.count; i += 4) dot_some<4>(rows.data + i * rows.stride, rows.stride, x, width, out + i);
  for (; i < rows.count; ++i) dot_some<1>(rows.data + i * rows.stride, rows.stride, x, width, out + i);
}

// Four vectors of the sum stay in registers while all rows are added.
void AddScaledRows(const Rows& rows, const float* factor, float* sum) {
  const D d;
  constexpr int kVectors = 4;
  const std::size_t lanes = hn::Lanes(d), width = static_cast<std::size_t>(rows.width);
  std::size_t k = 0;
  for (; k + kVectors * lanes <= width; k += kVectors * lanes) {
    hn::Vec<D> part[kVectors];
    for (int n = 0; n < kVectors; ++n) part[n] = hn::LoadU(d, sum + k + at(n) * lanes);
    for (int i = 0; i < rows.count; ++i) {
      if (factor[i] == 0) continue;
      const auto by = hn::Set(d, factor[i]);
      const float* row = rows.data + i * rows.stride + k;
      for (int n = 0; n < kVectors; ++n) part[n] = hn::MulAdd(by, hn::LoadU(d, row + at(n) * lanes), part[n]);
    }
    for (int n = 0; n < kVectors; ++n) hn::StoreU(part[n], d, sum + k + at(n) * lanes);
  }
  for (; k < width; k += lanes) {
    const std::size_t left = std::min(lanes, width - k);
    auto part = hn::LoadN(d, sum + k, left);
    for (int i = 0; i < rows.count; ++i)
      if (factor[i] != 0)
        part = hn::MulAdd(hn::Set(d, factor[i]), hn::LoadN(d, rows.data + i * rows.stride + k, left), part);
    hn::StoreN(part, d, sum + k, left);
  }
}

// out[i] += row i of `matrix` . x for kRows vectors x at once, each times its element i: a row of the matrix is read
// once for all of them.
template <int kRows>
HWY_INLINE void forms_of(const Rows& matrix, const float* rows, std::int64_t stride, float* out) {
  const D d;
  const std::size_t lanes = hn::Lanes(d), width = static_cast<std::size_t>(matrix.width);
  hn::Vec<D> form[kRows];
  for (auto& each : form) each = hn::Zero(d);
  for (int m = 0; m < matrix.count; ++m) {
    const float* line = matrix.data + m * matrix.stride;
    hn::Vec<D> sum[kRows];
    for (auto& each : sum) each = hn::Zero(d);
    std::size_t k = 0;
    for (; k + lanes <= width; k += lanes) {
      const auto y = hn::LoadU(d, line + k);
      for (int i = 0; i < kRows; ++i) sum[i] = hn::MulAdd(hn::LoadU(d, rows + i * stride + k), y, sum[i]);
    }
    if (k < width) {
      const auto y = hn::LoadN(d, line + k, width - k);
      for (int i = 0; i < kRows; ++i) sum[i] = hn::MulAdd(hn::LoadN(d, rows + i * stride + k, width - k), y, sum[i]);
    }
    for (int i = 0; i < kRows; ++i) form[i] = hn::MulAdd(hn::Set(d, rows[i * stride + m]), sum[i], form[i]);
  }
  for (int i = 0; i < kRows; ++i) out[i] = hn::ReduceSum(d, form[i]);
}

void QuadraticForms(const Rows& matrix, const Rows& rows, float* out) {
  int i = 0;
  for (; i + 8 <= rows.count; i += 8) forms_of<8>(matrix, rows.data + i * rows.stride, rows.stride, out + i);
  for (; i < rows.count; ++i) forms_of<1>(matrix, rows.data + i * rows.stride, rows.stride, out + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(DotRows);
HWY_EXPORT(AddScaledRows);
HWY_EXPORT(QuadraticForms);

namespace {

Rows one_row(std::span<const float> row) {
  return {row.data(), 1, static_cast<int>(row.size()), 0};
}

}  // namespace

float dot(std::span<const float> a, std::span<const float> b) {
  assert(a.size() == b.size());
  float out;
  HWY_DYNAMIC_DISPATCH(DotRows)(one_row(a), b.data(), &out);
  return out;
}

float norm(std::span<const float> row) {
  return std::sqrt(dot(row, row));
}

void add_scaled(float factor, std::span<const float> row, std::span<float> sum) {
  assert(row.size() == sum.size());
  HWY_DYNAMIC_DISPATCH(AddScaledRows)(one_row(row), &factor, sum.data());
}

void add_scaled_rows(const Rows& rows, std::span<const float> factor, std::span<float> sum) {
  assert(std::ssize(factor) == rows.count && std::ssize(sum) == rows.width);
  HWY_DYNAMIC_DISPATCH(AddScaledRows)(rows, factor.data(), sum.data());
}

void dot_rows(const Rows& rows, std::span<const float> x, std::span<float> out) {
  assert(std::ssize(x) == rows.width && std::ssize(out) == rows.count);
  HWY_DYNAMIC_DISPATCH(DotRows)(rows, x.data(), out.data());
}

void norm_rows(const Rows& rows, std::span<float> out) {
  assert(std::ssize(out) == rows.count);
  HWY_DYNAMIC_DISPATCH(DotRows)(rows, nullptr, out.data());
  for (float& each : out) each = std::sqrt(each);
}

void quadratic_forms(const Rows& matrix, const Rows& rows, std::span<float> out) {
  assert(matrix.count == matrix.width && matrix.width == rows.width && std::ssize(out) == rows.count);
  HWY_DYNAMIC_DISPATCH(QuadraticForms)(matrix, rows, out.data());
}

}  // namespace palimpsest
#endif
