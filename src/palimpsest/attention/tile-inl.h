// Tiles of keys and rows of values in vectors: converting loads, 2^x, rotation, and the two register-blocked kernels of
// attention (q.k and weights.v). Compiled once per instruction set (kernels.h).

#if defined(PALIMPSEST_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_TILE_INL_H_
#undef PALIMPSEST_ATTENTION_TILE_INL_H_
#else
#define PALIMPSEST_ATTENTION_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "palimpsest/attention/unit.h"
#include "palimpsest/cache/formats/q8_0.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, kTile>;
using I = hn::RebindToSigned<F>;
using Vec = hn::Vec<F>;
using Mask = hn::Mask<F>;
inline constexpr F df{};
inline constexpr I di{};
inline constexpr float kNothing = -std::numeric_limits<float>::infinity();
// Register blocks are arrays of vectors, so their length must be a compile-time constant: kernels.h disables targets
// with scalable vectors. Code for such targets steps by hn::Lanes(d).
static_assert(!HWY_HAVE_SCALABLE, "include attention/kernels.h before anything of Highway");
inline constexpr int kLanes = HWY_MAX_LANES_D(F);
inline constexpr int kVectors = kBlock / kLanes;  // per block
// Vectors of a register block of 4 rows: 16 (8) accumulators of 32 (16) registers.
inline constexpr int kWide = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 4 : 2;

HWY_INLINE Vec load(const float* from) {
  return hn::LoadU(df, from);
}
template <class T>
HWY_INLINE Vec load(const T* from) {
  return hn::PromoteTo(df, hn::LoadU(hn::Rebind<T, F>(), from));
}
HWY_INLINE Vec load(const std::int8_t* from) {
  return hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(hn::Rebind<std::int8_t, F>(), from)));
}
HWY_INLINE Vec load_first(const float* from, int count) {
  return hn::LoadN(df, from, static_cast<std::size_t>(count));
}
template <class T>
HWY_INLINE Vec load_first(const T* from, int count) {
  return hn::PromoteTo(df, hn::LoadN(hn::Rebind<T, F>(), from, static_cast<std::size_t>(count)));
}
HWY_INLINE Vec load_first(const std::int8_t* from, int count) {
  return hn::ConvertTo(
      df, hn::PromoteTo(di, hn::LoadN(hn::Rebind<std::int8_t, F>(), from, static_cast<std::size_t>(count))));
}
// Scales of a q8_0 tile of `dim` dimensions: of the group of dimension d, for kLanes slots from `lane` on.
HWY_INLINE Vec scales_at(const std::int8_t* tile, int dim, int d, int lane) {
  return load(reinterpret_cast<const hwy::float16_t*>(tile + q8_0::scales_offset(dim)) + d / q8_0::kGroup * kTile +
              lane);
}
template <class T>
inline constexpr bool kIsScaled = std::is_same_v<T, std::int8_t>;

HWY_INLINE void round_row(const float* from, int count, float* to) {
  hwy::CopyBytes(from, to, static_cast<std::size_t>(count) * sizeof(float));
}
template <class T>
HWY_INLINE void round_row(const float* from, int count, T* to) {
  const hn::Rebind<T, F> dt;
  for (; count >= kLanes; count -= kLanes, from += kLanes, to += kLanes)
    hn::StoreU(hn::DemoteTo(dt, hn::LoadU(df, from)), dt, to);
  hn::StoreN(hn::DemoteTo(dt, load_first(from, count)), dt, to, static_cast<std::size_t>(count));
}

// 2^t - 1 + start for |t| <= 1/2, a minimax polynomial: 2e-9.
HWY_INLINE Vec pow2_near(Vec t, Vec start) {
  const Vec t2 = hn::Mul(t, t);
  const Vec low = hn::MulAdd(hn::Set(df, 0.693147205737f), t, start);
  const Vec middle = hn::MulAdd(hn::Set(df, 0.05550328777f), t, hn::Set(df, 0.240226468906f));
  const Vec high = hn::MulAdd(hn::Set(df, 0.00133999312095f), t, hn::Set(df, 0.00961848895652f));
  const Vec top = hn::MulAdd(hn::Set(df, 0.000153458121587f), t2, high);
  return hn::MulAdd(t2, hn::MulAdd(t2, top, middle), low);
}

// 2^x for x <= 0; 0 below -126. Relative error < 2e-7, from rounding.
HWY_INLINE Vec pow2(Vec x) {
  const Vec floor = hn::Set(df, -126.0f), min = hn::Max(x, floor);
  const Vec whole = hn::Round(min), p = pow2_near(hn::Sub(min, whole), hn::Set(df, 1.0f));
  const auto power = hn::ShiftLeft<23>(hn::ConvertTo(di, whole));
  return hn::IfThenElseZero(hn::Ge(x, floor), hn::BitCast(df, hn::Add(hn::BitCast(di, p), power)));
}
HWY_INLINE float pow2(float x) {
  return hn::GetLane(pow2(hn::Set(df, x)));
}

inline constexpr float kLog2E = 1.44269504f;

// cap * tanh(score / cap); scores are in units of log2, the cap is in natural units. With m = e^-2|x| - 1, tanh|x| = -m
// / (2 + m), and m is small where x is small: the relative error is that of rounding.
HWY_INLINE Vec soft_capped(Vec score, float cap) {
  const Vec one = hn::Set(df, 1.0f);
  const Vec x = hn::Max(hn::Mul(hn::Abs(score), hn::Set(df, -2 / cap)), hn::Set(df, -126.0f)), whole = hn::Round(x);
  const auto power = hn::BitCast(df, hn::Add(hn::ShiftLeft<23>(hn::ConvertTo(di, whole)), hn::BitCast(di, one)));
  const Vec m = hn::MulAdd(power, pow2_near(hn::Sub(x, whole), hn::Zero(df)), hn::Sub(power, one));
  const Vec tanh = hn::Div(hn::Neg(m), hn::Add(hn::Set(df, 2.0f), m));
  return hn::CopySign(hn::Mul(hn::Set(df, cap * kLog2E), tanh), score);
}

// One vector's part of a block's bits: bit s is slot s.
HWY_INLINE Mask mask_of(std::uint64_t bits, int vector) {
  const std::uint64_t mine = bits >> (vector * kLanes);
  std::uint8_t bytes[8];
  hwy::CopyBytes<8>(&mine, bytes);
  return hn::LoadMaskBits(df, bytes);
}

// out = factor * (x rotated by a row of cosines and sines); row == nullptr: no rotation.
HWY_INLINE void rotate(const float* HWY_RESTRICT x, int head_dim, const AttentionShape& shape, const float* row,
                       float factor, float* HWY_RESTRICT out) {
  const int pairs = row == nullptr || shape.rope == RopeKind::kNone ? 0 : shape.rope_dims / 2;
  const float *HWY_RESTRICT cos = row, *HWY_RESTRICT sin = row + pairs;
  if (pairs > 0 && shape.rope == RopeKind::kPairs) {
    for (int p = 0; p < pairs; ++p) {
      out[2 * p] = factor * (x[2 * p] * cos[p] - x[2 * p + 1] * sin[p]);
      out[2 * p + 1] = factor * (x[2 * p] * sin[p] + x[2 * p + 1] * cos[p]);
    }
  } else {
    for (int p = 0; p < pairs; ++p) {
      out[p] = factor * (x[p] * cos[p] - x[p + pairs] * sin[p]);
      out[p + pairs] = factor * (x[p] * sin[p] + x[p + pairs] * cos[p]);
    }
  }
  for (int d = 2 * pairs; d < head_dim; ++d) out[d] = factor * x[d];
}

template <class T>
HWY_INLINE void widen_tile(const T* tile, int head_dim, float* HWY_RESTRICT out) {
  if constexpr (kIsScaled<T>) {
    for (int d = 0; d < head_dim; ++d)
      for (int n = 0; n < kTile; n += kLanes)
        hn::StoreU(hn::Mul(load(tile + d * kTile + n), scales_at(tile, head_dim, d, n)), df, out + d * kTile + n);
    return;
  }
  for (int n = 0; n < head_dim * kTile; n += kLanes) hn::StoreU(load(tile + n), df, out + n);
}

HWY_INLINE void fetch_row(const float* row, int count) {
  for (int n = 0; n < count; n += 16) hwy::Prefetch(row + n);
}

// score[r][s] = q[r] . key[s] for R rows and a block of four tiles: each loaded key vector is used for all rows.
// Queries are interleaved by four: q[d * 4 + r].
template <int R, class T>
HWY_INLINE void dot_rows(const float* HWY_RESTRICT q, int head_dim, const T* const* tiles, const Prefetch& prefetch,
                         float* HWY_RESTRICT score) {
  for (int first = 0; first < kVectors; first += kWide) {
    const T* at[kWide];
    Vec sum[R][kWide];
    [[maybe_unused]] Vec scale[kWide];
    for (int v = 0; v < kWide; ++v) {
      const int lane = (first + v) * kLanes;
      at[v] = tiles[lane / kTile] + lane % kTile;
      for (int r = 0; r < R; ++r) sum[r][v] = hn::Zero(df);
    }
    for (int quarter = 0, d = 0; quarter < 4; ++quarter) {
      const int end = head_dim * (quarter + 1) / 4;
      Prefetch::Piece part = prefetch.pass(first / kWide, kVectors / kWide).quarter(quarter, end - d);
      for (; d < end; ++d) {
        part.next();
        Vec k[kWide];
        for (int v = 0; v < kWide; ++v) k[v] = load(at[v] + d * kTile);
        if constexpr (kIsScaled<T>) {
          for (int v = 0; d % q8_0::kGroup == 0 && v < kWide; ++v) {
            const int lane = (first + v) * kLanes;
            scale[v] = scales_at(tiles[lane / kTile], head_dim, d, lane % kTile);
          }
          for (int v = 0; v < kWide; ++v) k[v] = hn::Mul(k[v], scale[v]);
        }
        for (int r = 0; r < R; ++r) {
          const Vec x = hn::Set(df, q[d * 4 + r]);
          for (int v = 0; v < kWide; ++v) sum[r][v] = hn::MulAdd(x, k[v], sum[r][v]);
        }
      }
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < kWide; ++v) hn::StoreU(sum[r][v], df, score + r * kBlock + (first + v) * kLanes);
  }
}

// The values of a block: a pointer to the first row of each tile, rows `stride` elements apart.
template <class T>
struct ValueTiles {
  const T* tile[4];
  int stride;
};

// out[r][0 .. W vectors) = correction[r] * out[r] + sum over used slots of weight[r][s] * value[s]
template <int R, int W, class T>
HWY_INLINE void add_columns(const float* HWY_RESTRICT weight, const ValueTiles<T>& values, int column,
                            std::uint64_t used, const Prefetch::Pass& prefetch, const float* correction,
                            float* HWY_RESTRICT out, std::size_t out_stride) {
  Vec sum[R][W];
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w)
      sum[r][w] = hn::Mul(hn::Set(df, correction[r]), hn::LoadU(df, out + r * out_stride + w * kLanes));
  const auto add = [&](const T* row, int slot, Prefetch::Piece& part) HWY_ATTR {
    part.next();
    Vec v[W];
    for (int w = 0; w < W; ++w) v[w] = load(row + w * kLanes);
    for (int r = 0; r < R; ++r) {
      const Vec x = hn::Set(df, weight[r * kBlock + slot]);
      for (int w = 0; w < W; ++w) sum[r][w] = hn::MulAdd(x, v[w], sum[r][w]);
    }
  };
  for (int t = 0; t < 4; ++t) {
    const T* const rows = values.tile[t] + column;
    std::uint32_t bits = static_cast<std::uint32_t>(used >> (t * kTile)) & 0xffff;
    Prefetch::Piece part = prefetch.quarter(t, std::popcount(bits));
    if (bits == 0xffff) {
      for (int s = 0; s < kTile; ++s) add(rows + s * values.stride, t * kTile + s, part);
    } else {
      for (; bits != 0; bits &= bits - 1) {
        const int s = std::countr_zero(bits);
        add(rows + s * values.stride, t * kTile + s, part);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) hn::StoreU(sum[r][w], df, out + r * out_stride + w * kLanes);
}

// The last columns, when the width is not a multiple of the vector length.
template <class T>
HWY_INLINE void add_last_columns(const float* weight, const ValueTiles<T>& values, int column, int count,
                                 std::uint64_t used, float correction, float* HWY_RESTRICT out) {
  Vec sum = hn::Mul(hn::Set(df, correction), hn::LoadU(df, out));
  for (; used != 0; used &= used - 1) {
    const int s = std::countr_zero(used);
    const Vec v = load_first(values.tile[s / kTile] + (s % kTile) * values.stride + column, count);
    sum = hn::MulAdd(hn::Set(df, weight[s]), v, sum);
  }
  hn::StoreU(sum, df, out);
}

template <int R, class T>
HWY_INLINE void add_values(const float* weight, const ValueTiles<T>& values, int value_dim, std::uint64_t used,
                           const Prefetch& prefetch, const float* correction, float* out, std::size_t out_stride) {
  int c = 0;
  if constexpr (kIsScaled<T>) {
    // 32 columns share a scale per slot: it is multiplied into the weights.
    HWY_ALIGN float scaled[R * kBlock];
    for (const int passes = value_dim / q8_0::kGroup; c < value_dim; c += q8_0::kGroup) {
      for (int n = 0; n < kBlock; n += kLanes) {
        const Vec scale = scales_at(values.tile[n / kTile], value_dim, c, n % kTile);
        for (int r = 0; r < R; ++r)
          hn::Store(hn::Mul(scale, hn::LoadU(df, weight + r * kBlock + n)), df, scaled + r * kBlock + n);
      }
      add_columns<R, q8_0::kGroup / kLanes>(scaled, values, c, used, prefetch.pass(c / q8_0::kGroup, passes),
                                            correction, out + c, out_stride);
    }
    return;
  }
  constexpr int kColumns = kWide * kLanes;
  const int passes = value_dim / kColumns + value_dim % kColumns / kLanes;
  int pass = 0;
  for (; c + kColumns <= value_dim; c += kColumns)
    add_columns<R, kWide>(weight, values, c, used, prefetch.pass(pass++, passes), correction, out + c, out_stride);
  for (; c + kLanes <= value_dim; c += kLanes)
    add_columns<R, 1>(weight, values, c, used, prefetch.pass(pass++, passes), correction, out + c, out_stride);
  for (int r = 0; c < value_dim && r < R; ++r)
    add_last_columns(weight + r * kBlock, values, c, value_dim - c, used, correction[r], out + r * out_stride + c);
}

// Calls body.operator()<R>(first row) for all rows, four at a time.
template <class Body>
HWY_INLINE void by_four_rows(int rows, const Body& body) {
  int r = 0;
  for (; r + 4 <= rows; r += 4) body.template operator()<4>(r);
  switch (rows - r) {
    case 3:
      return body.template operator()<3>(r);
    case 2:
      return body.template operator()<2>(r);
    case 1:
      return body.template operator()<1>(r);
  }
}

// Adds a block's values, times the weights in UnitMemory::score, to all rows of a unit.
template <class T>
HWY_INLINE void add_rows(const Unit& u, const ValueTiles<T>& values, std::uint64_t used, const Prefetch& prefetch) {
  const std::size_t stride = static_cast<std::size_t>(u.value_stride());
  by_four_rows(u.rows(), [&]<int R>(int r) HWY_ATTR {
    add_values<R>(u.memory.score + r * kBlock, values, u.shape().value_dim, used, r == 0 ? prefetch : Prefetch(),
                  u.memory.correction + r, u.memory.value + r * stride, stride);
  });
}

// Reduces one row's weights `p` into `received`. `last`: the row is the last of its query's group; `group_max`: max
// over the group so far.
HWY_INLINE void add_weight(WeightReduction as, bool last, Vec p, Vec& group_max, Vec& received) {
  if (as == WeightReduction::kMeanOverGroup) {
    received = hn::Add(received, p);
  } else if (as == WeightReduction::kMaxOverAll) {
    received = hn::Max(received, p);
  } else {
    group_max = hn::Max(group_max, p);
    if (!last) return;
    received = hn::Add(received, group_max);
    group_max = hn::Zero(df);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
