// Multiplies panels of floats with rows of activations. Internal.
//
// A result is the sum, in ascending order, of sums over kPart columns; each adds its columns (bf16 dot products: pairs
// of columns) in ascending order. This is so whatever the number of panels and tokens that are multiplied together, and
// whatever the length of vectors. The sums of sums are more accurate than one of all columns.

#if defined(PALIMPSEST_MATMUL_FLOAT_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_MATMUL_FLOAT_PRODUCT_INL_H_
#undef PALIMPSEST_MATMUL_FLOAT_PRODUCT_INL_H_
#else
#define PALIMPSEST_MATMUL_FLOAT_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>
#include <utility>

#include "palimpsest/matmul/codes-inl.h"
#include "palimpsest/matmul/panel_type.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

using DB = hn::FixedTag<hwy::bfloat16_t, 2 * kLanes>;
using VB = hn::Vec<DB>;

constexpr std::int64_t kPart = 64;

// A kernel's types: what it stores of a column of 16 rows, and of an activation; `load` and `spread` give the operands
// of `add`, a step of kColumns columns.
struct OfF32 {
  using Stored = float;
  using X = float;
  static constexpr int kColumns = 1;
  static HWY_INLINE VF load(const Stored* w) { return hn::LoadU(DF(), w); }
  static HWY_INLINE VF spread(const X* x) { return hn::Set(DF(), *x); }
  static HWY_INLINE VF add(VF w, VF x, VF sum) { return hn::MulAdd(w, x, sum); }
};

struct OfF16 : OfF32 {
  using Stored = hwy::float16_t;
  static HWY_INLINE VF load(const Stored* w) {
    return hn::PromoteTo(DF(), hn::LoadU(hn::Rebind<hwy::float16_t, DF>(), w));
  }
};

// Without bf16 dot products: exact weights, f32 activations.
struct OfWideBf16 {
  using Stored = hwy::bfloat16_t;
  using X = float;
  static constexpr int kColumns = 2;
  struct Two {
    VF first, second;
  };
  static HWY_INLINE Two load(const Stored* w) {
    const VI32 both = hn::BitCast(DI32(), hn::LoadU(DB(), w));
    return {hn::BitCast(DF(), hn::ShiftLeft<16>(both)),
            hn::BitCast(DF(), hn::And(both, hn::Set(DI32(), static_cast<std::int32_t>(0xFFFF0000U))))};
  }
  static HWY_INLINE Two spread(const X* x) { return {hn::Set(DF(), x[0]), hn::Set(DF(), x[1])}; }
  static HWY_INLINE VF add(const Two& w, const Two& x, VF sum) {
    return hn::MulAdd(w.second, x.second, hn::MulAdd(w.first, x.first, sum));
  }
};

#if HWY_NATIVE_DOT_BF16
struct OfBf16 {
  using Stored = hwy::bfloat16_t;
  using X = hwy::bfloat16_t;
  static constexpr int kColumns = 2;
  static HWY_INLINE VB load(const Stored* w) { return hn::LoadU(DB(), w); }
  static HWY_INLINE VB spread(const X* x) {
    std::int32_t two;
    std::memcpy(&two, x, 4);
    return hn::BitCast(DB(), hn::Set(DI32(), two));
  }
  static HWY_INLINE VF add(VB w, VB x, VF sum) {
    VF unused = hn::Zero(DF());
    return hn::ReorderWidenMulAccumulate(DF(), w, x, sum, unused);
  }
};
#endif

template <class Of, int kPanels, int kTokens>
HWY_INLINE void multiply_tile(const typename Of::Stored* panel, std::int64_t columns, const typename Of::X* x,
                              std::int64_t x_stride, float* y, std::int64_t y_stride) {
  constexpr int kVectors = kPanels * kSlices;
  HWY_ALIGN float total[kVectors][kTokens][kLanes] = {};  // not in registers: they hold the sums
  for (std::int64_t done = 0; done < columns; done += kPart) {
    VF sum[kVectors][kTokens];
    PALIMPSEST_UNROLLED (v, kVectors) {
      PALIMPSEST_UNROLLED (t, kTokens) sum[v][t] = hn::Zero(DF());
    }
    const typename Of::X* const end = x + HWY_MIN(kPart, columns - done);
    for (; x < end; panel += kPanelRows * Of::kColumns, x += Of::kColumns) {
      decltype(Of::load(panel)) w[kVectors];
      PALIMPSEST_UNROLLED (v, kVectors)
        w[v] = Of::load(panel + v / kSlices * kPanelRows * columns + v % kSlices * kLanes * Of::kColumns);
      PALIMPSEST_UNROLLED (t, kTokens) {
        const auto one = Of::spread(x + t * x_stride);
        PALIMPSEST_UNROLLED (v, kVectors) sum[v][t] = Of::add(w[v], one, sum[v][t]);
      }
    }
    PALIMPSEST_UNROLLED (v, kVectors) {
      PALIMPSEST_UNROLLED (t, kTokens) hn::Store(hn::Add(hn::Load(DF(), total[v][t]), sum[v][t]), DF(), total[v][t]);
    }
  }
  PALIMPSEST_UNROLLED (v, kVectors) {
    PALIMPSEST_UNROLLED (t, kTokens) hn::StoreU(hn::Load(DF(), total[v][t]), DF(), y + t * y_stride + v * kLanes);
  }
}

template <class Of, int kPanels>
HWY_NOINLINE HWY_FLATTEN void multiply_some(const typename Of::Stored* panel, std::int64_t columns,
                                            const typename Of::X* x, std::int64_t x_stride, int tokens, float* y,
                                            std::int64_t y_stride) {
  const auto take = [&]<int kTokens>() HWY_ATTR {
    for (; tokens >= kTokens; tokens -= kTokens, x += kTokens * x_stride, y += kTokens * y_stride)
      multiply_tile<Of, kPanels, kTokens>(panel, columns, x, x_stride, y, y_stride);
  };
  if constexpr (kSlices == 1 && kPanels <= 2) take.template operator()<12>();
  if constexpr (kSlices == 2 && kPanels == 1) take.template operator()<6>();
  if constexpr (kSlices == 1 || kPanels == 1) take.template operator()<4>();
  take.template operator()<1>();
}

// Tokens from which fewer panels are multiplied at once: the sums of more of each do not fit into the registers. For
// fewer tokens, more sums at once hide the latency of an addition.
constexpr int kManyTokens = kSlices == 1 ? 12 : 4;

template <class Of>
void multiply_floats(const std::byte* panel, int panels, int blocks, const std::byte* x, std::int64_t x_stride,
                     int tokens, float* y, std::int64_t y_stride) {
  const std::int64_t columns = std::int64_t{blocks} * kGroup;
  const auto* w = reinterpret_cast<const typename Of::Stored*>(panel);
  const auto take = [&]<int kPanels>() HWY_ATTR {
    for (; panels >= kPanels; panels -= kPanels, w += kPanels * kPanelRows * columns, y += kPanels * kPanelRows)
      multiply_some<Of, kPanels>(w, columns, reinterpret_cast<const typename Of::X*>(x), x_stride * kGroup, tokens, y,
                                 y_stride);
  };
  if (tokens < kManyTokens) take.template operator()<4>();
  if constexpr (kSlices == 1) take.template operator()<2>();
  take.template operator()<1>();
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif  // include guard
