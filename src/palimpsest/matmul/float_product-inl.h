// Multiplies panels of floats with rows of activations, on 64-byte vectors. Internal.
//
// A result is the sum, in ascending order, of sums over kPart columns; each adds its columns (bf16: pairs of columns)
// in ascending order. This is so whatever the number of panels and tokens that are multiplied together. The sums of
// sums are more accurate than one of all columns.

#if defined(PALIMPSEST_MATMUL_FLOAT_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_MATMUL_FLOAT_PRODUCT_INL_H_
#undef PALIMPSEST_MATMUL_FLOAT_PRODUCT_INL_H_
#else
#define PALIMPSEST_MATMUL_FLOAT_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>
#include <utility>

#include "palimpsest/matmul/panel_type.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::FixedTag<float, 16>;
using DB = hn::FixedTag<hwy::bfloat16_t, 32>;
using VF = hn::Vec<DF>;

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
    return hn::PromoteTo(DF(), hn::LoadU(hn::FixedTag<hwy::float16_t, 16>(), w));
  }
};

#if HWY_NATIVE_DOT_BF16
struct OfBf16 {
  using Stored = hwy::bfloat16_t;
  using X = hwy::bfloat16_t;
  static constexpr int kColumns = 2;
  static HWY_INLINE hn::Vec<DB> load(const Stored* w) { return hn::LoadU(DB(), w); }
  static HWY_INLINE hn::Vec<DB> spread(const X* x) {
    std::int32_t two;
    std::memcpy(&two, x, 4);
    return hn::BitCast(DB(), hn::Set(hn::FixedTag<std::int32_t, 16>(), two));
  }
  static HWY_INLINE VF add(hn::Vec<DB> w, hn::Vec<DB> x, VF sum) {
    VF unused = hn::Zero(DF());
    return hn::ReorderWidenMulAccumulate(DF(), w, x, sum, unused);
  }
};
#endif

template <class Of, int kPanels, int kTokens>
HWY_INLINE void multiply_tile(const typename Of::Stored* panel, std::int64_t columns, const typename Of::X* x,
                              std::int64_t x_stride, float* y, std::int64_t y_stride) {
  const auto for_each = [&]<int... P>(std::integer_sequence<int, P...>, const auto& call) HWY_ATTR {
    (call(std::integral_constant<int, P>()), ...);
  };
  constexpr auto kAllPanels = std::make_integer_sequence<int, kPanels>();
  constexpr auto kAllTokens = std::make_integer_sequence<int, kTokens>();
  const auto each = [&](const auto& call) HWY_ATTR {
    for_each(kAllPanels, [&](auto p) HWY_ATTR { for_each(kAllTokens, [&](auto t) HWY_ATTR { call(p, t); }); });
  };
  HWY_ALIGN float total[kPanels][kTokens][kPanelRows] = {};  // not in registers: they hold the sums
  for (std::int64_t done = 0; done < columns; done += kPart) {
    VF sum[kPanels][kTokens];
    each([&](auto p, auto t) HWY_ATTR { sum[p][t] = hn::Zero(DF()); });
    const typename Of::X* const end = x + HWY_MIN(kPart, columns - done);
    for (; x < end; panel += kPanelRows * Of::kColumns, x += Of::kColumns) {
      decltype(Of::load(panel)) w[kPanels];
      for_each(kAllPanels, [&](auto p) HWY_ATTR { w[p] = Of::load(panel + p * kPanelRows * columns); });
      for_each(kAllTokens, [&](auto t) HWY_ATTR {
        const auto one = Of::spread(x + t * x_stride);
        for_each(kAllPanels, [&](auto p) HWY_ATTR { sum[p][t] = Of::add(w[p], one, sum[p][t]); });
      });
    }
    each([&](auto p, auto t)
             HWY_ATTR { hn::Store(hn::Add(hn::Load(DF(), total[p][t]), sum[p][t]), DF(), total[p][t]); });
  }
  each([&](auto p, auto t)
           HWY_ATTR { hn::StoreU(hn::Load(DF(), total[p][t]), DF(), y + t * y_stride + p * kPanelRows); });
}

template <class Of, int kPanels>
void multiply_some(const typename Of::Stored* panel, std::int64_t columns, const typename Of::X* x,
                   std::int64_t x_stride, int tokens, float* y, std::int64_t y_stride) {
  const auto take = [&]<int kTokens>() HWY_ATTR {
    for (; tokens >= kTokens; tokens -= kTokens, x += kTokens * x_stride, y += kTokens * y_stride)
      multiply_tile<Of, kPanels, kTokens>(panel, columns, x, x_stride, y, y_stride);
  };
  if constexpr (kPanels <= 2) take.template operator()<12>();
  take.template operator()<4>();
  take.template operator()<1>();
}

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
  if (tokens < 12) take.template operator()<4>();  // more accumulators at once hide the latency of an addition
  take.template operator()<2>();
  take.template operator()<1>();
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif  // include guard
