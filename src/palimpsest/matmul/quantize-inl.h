// Rounds activations to groups of signed bytes. Internal.

#if defined(PALIMPSEST_MATMUL_QUANTIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_MATMUL_QUANTIZE_INL_H_
#undef PALIMPSEST_MATMUL_QUANTIZE_INL_H_
#else
#define PALIMPSEST_MATMUL_QUANTIZE_INL_H_
#endif

#include <hwy/highway.h>

#include <limits>

#include "palimpsest/matmul/codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

// Numbers of groups below it count as 0: 127 / max would be infinite.
constexpr float kSmallest = 1e-36F;

inline void quantize(const float* x, int count, std::byte* groups) {
  auto* out = reinterpret_cast<ActivationGroup*>(groups);
  const DF d;
  const hn::Rebind<std::int8_t, DF> d8;
  constexpr int kVectors = kGroup / kLanes;
  for (int k = 0; k < count; k += kGroup, ++out) {
    VF part[kVectors], max = hn::Zero(d);
    auto finite = hn::IsFinite(max);
    for (int v = 0; v < kVectors; ++v) {
      part[v] = hn::LoadU(d, x + k + v * kLanes);
      finite = hn::And(finite, hn::IsFinite(part[v]));
      max = hn::Max(max, hn::Abs(part[v]));
    }
    const bool all_finite = hn::AllTrue(d, finite);
    const float largest = hn::ReduceMax(d, max);
    if (!all_finite || largest < kSmallest) {
      *out = ActivationGroup{};
      out->scale = out->negative_total = all_finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    const VF inverse = hn::Set(d, 127.0F / largest);
    VI32 half[2] = {hn::Zero(DI32()), hn::Zero(DI32())};
    for (int v = 0; v < kVectors; ++v) {
      const VI32 code = hn::NearestInt(hn::Mul(part[v], inverse));
      hn::StoreU(hn::DemoteTo(d8, code), d8, out->code + v * kLanes);
      half[2 * v / kVectors] = hn::Add(half[2 * v / kVectors], code);
    }
    out->scale = largest / 127.0F;
    const int sums[2] = {hn::ReduceSum(DI32(), half[0]), hn::ReduceSum(DI32(), half[1])}, sum = sums[0] + sums[1];
    out->negative_total = out->scale * static_cast<float>(-sum);
    out->offset_8 = -8 * sum;
    out->offset_128 = -128 * sum;
    out->half_offset_32[0] = -32 * sums[0];
    out->half_offset_32[1] = -32 * sums[1];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif  // include guard
