// Products of q8_0 keys and values in integers: twice the products per instruction of f32, and fewer conversions.
//
//   keys:    score = sum over groups of 32 dimensions of  key scale * query step * sum(key byte * query code)
//   values:  out  += step * sum over slots of  value byte * weight code,  where a weight includes its slot's scale
//
// A code is a 16-bit integer: a float divided by its step, which is the largest of its group / 32,767 (queries: 32
// dimensions; weights: 64 slots). Its rounding is 1/256 of that of the stored bytes. Sums are exact: 64 * 32,767 * 128
// fits into 32 bits. An infinite or NaN float makes the step infinite or NaN, so the result is not finite.

#if defined(PALIMPSEST_ATTENTION_INTEGERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_INTEGERS_INL_H_
#undef PALIMPSEST_ATTENTION_INTEGERS_INL_H_
#else
#define PALIMPSEST_ATTENTION_INTEGERS_INL_H_
#endif

#include "palimpsest/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX2  // of x86; elsewhere bytes are converted to f32

inline constexpr float kLargestCode = 32767;

using Codes = hn::Repartition<std::int16_t, F>;
using Bytes = hn::Repartition<std::int8_t, F>;

// Stores the codes of N vectors, in their order; returns their step.
template <int N>
HWY_INLINE float store_codes(const Vec* x, std::int16_t* to) {
  hn::Vec<I> largest = hn::Zero(di);  // bits of floats that are not negative have their order, and NaN is the largest
  for (int n = 0; n < N; ++n) largest = hn::Max(largest, hn::BitCast(di, hn::Abs(x[n])));
  const float max = hwy::BitCastScalar<float>(hn::ReduceMax(di, largest));
  const Vec inverse = hn::Set(df, max > 1e-30f ? kLargestCode / max : 0.0f);
  const hn::Rebind<std::int16_t, F> dc;
  for (int n = 0; n < N; ++n) hn::StoreU(hn::DemoteTo(dc, hn::NearestInt(hn::Mul(x[n], inverse))), dc, to + n * kLanes);
  return max * (1 / kLargestCode);
}

// sum + a[2i] * b[2i] + a[2i + 1] * b[2i + 1]
HWY_INLINE hn::Vec<I> add_pairs(hn::Vec<Codes> a, hn::Vec<Codes> b, hn::Vec<I> sum) {
#if HWY_TARGET <= HWY_AVX3_DL
  hn::Vec<I> unused = hn::Zero(di);
  return hn::ReorderWidenMulAccumulate(di, a, b, sum, unused);  // one instruction; on x86 it adds pairs
#else
  return hn::Add(sum, hn::WidenMulPairwiseAdd(di, a, b));
#endif
}

// Two codes in every pair of lanes.
HWY_INLINE hn::Vec<Codes> pair_at(const std::int16_t* codes) {
  std::int32_t both;
  hwy::CopyBytes<4>(codes, &both);
  return hn::BitCast(Codes(), hn::Set(di, both));
}

struct TwoPairs {
  hn::Vec<Codes> first, second;
};

#if HWY_TARGET <= HWY_AVX3
// a[0] b[0] a[1] b[1] ... a[15] b[15] as 16-bit integers.
HWY_INLINE hn::Vec<Codes> interleaved(const std::int8_t* a, const std::int8_t* b) {
  const hn::CappedTag<std::int8_t, 16> d16;
  const auto x = hn::LoadU(d16, a), y = hn::LoadU(d16, b);
  const hn::Twice<decltype(d16)> d32;
  return hn::PromoteTo(Codes(), hn::Combine(d32, hn::InterleaveUpper(d16, x, y), hn::InterleaveLower(x, y)));
}
#else
// The same in two vectors.
HWY_INLINE TwoPairs interleaved(const std::int8_t* a, const std::int8_t* b) {
  const hn::CappedTag<std::int8_t, 16> d16;
  const auto x = hn::LoadU(d16, a), y = hn::LoadU(d16, b);
  return {hn::PromoteTo(Codes(), hn::InterleaveLower(x, y)), hn::PromoteTo(Codes(), hn::InterleaveUpper(d16, x, y))};
}
#endif

HWY_INLINE TwoPairs widened(hn::Vec<Bytes> bytes) {
  const hn::Half<Bytes> half;
  return {hn::PromoteTo(Codes(), hn::LowerHalf(half, bytes)), hn::PromoteTo(Codes(), hn::UpperHalf(half, bytes))};
}

// Bytes of four dimensions of kLanes keys: those of the first two, in pairs, and those of the others.
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE TwoPairs key_pairs(const std::int8_t* at) {
#if HWY_TARGET <= HWY_AVX3_DL
  HWY_ALIGN static constexpr std::uint8_t kOrder[64] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                        8,  24, 9,  25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31,
                                                        32, 48, 33, 49, 34, 50, 35, 51, 36, 52, 37, 53, 38, 54, 39, 55,
                                                        40, 56, 41, 57, 42, 58, 43, 59, 44, 60, 45, 61, 46, 62, 47, 63};
  return widened(hn::TableLookupLanes(hn::LoadU(Bytes(), at), hn::SetTableIndices(Bytes(), kOrder)));
#else
  return {interleaved(at, at + kTile), interleaved(at + 2 * kTile, at + 3 * kTile)};
#endif
}
#endif
// The same of 2 * kLanes keys: kLanes from at[0] on, and kLanes from at[1] on.
HWY_INLINE void key_pairs(const std::int8_t* const* at, TwoPairs* keys) {
#if HWY_TARGET <= HWY_AVX3
  keys[0] = key_pairs(at[0]);
  keys[1] = key_pairs(at[1]);
#else  // one tile
  const TwoPairs a = interleaved(at[0], at[0] + kTile), b = interleaved(at[0] + 2 * kTile, at[0] + 3 * kTile);
  keys[0] = {a.first, b.first};
  keys[1] = {a.second, b.second};
#endif
}

// Bytes of 2 * kLanes columns of two values, in pairs: the first kLanes columns, and the others.
HWY_INLINE TwoPairs value_pairs(const std::int8_t* a, const std::int8_t* b) {
#if HWY_TARGET <= HWY_AVX3_DL
  HWY_ALIGN static constexpr std::uint8_t kOrder[64] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                        8,  40, 9,  41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47,
                                                        16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                                        24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
  const hn::Half<Bytes> half;
  const auto both = hn::Combine(Bytes(), hn::LoadU(half, b), hn::LoadU(half, a));
  return widened(hn::TableLookupLanes(both, hn::SetTableIndices(Bytes(), kOrder)));
#elif HWY_TARGET <= HWY_AVX3
  return {interleaved(a, b), interleaved(a + kLanes, b + kLanes)};
#else
  return interleaved(a, b);
#endif
}

// Codes and steps of one query, into its lane among four rows: codes [head_dim / 2][4][2], steps [head_dim / 32][4].
HWY_INLINE void encode_query(const float* HWY_RESTRICT query, int head_dim, std::int16_t* HWY_RESTRICT codes,
                             float* HWY_RESTRICT steps) {
  HWY_ALIGN std::int16_t row[q8_0::kGroup];
  constexpr int kParts = q8_0::kGroup / kLanes;
  for (int first = 0; first < head_dim; first += q8_0::kGroup, steps += 4) {
    Vec x[kParts];
    for (int n = 0; n < kParts; ++n) x[n] = hn::LoadU(df, query + first + n * kLanes);
    *steps = store_codes<kParts>(x, row);
    for (int d = 0; d < q8_0::kGroup; d += 2) hwy::CopyBytes<4>(row + d, codes + (first + d) * 4);
  }
}

// score[r][s] = q[r] . key[s] for R rows and a block of four tiles.
template <int R>
HWY_INLINE void dot_coded_queries(const std::int16_t* HWY_RESTRICT codes, const float* HWY_RESTRICT steps, int head_dim,
                                  const std::int8_t* const* tiles, const Prefetch& prefetch,
                                  float* HWY_RESTRICT score) {
  constexpr int kW = 2, kSteps = q8_0::kGroup / 4;
  const int groups = head_dim / q8_0::kGroup;
  BlockPrefetch parts(prefetch, kVectors / kW * groups * 2);
  for (int first = 0; first < kVectors; first += kW) {
    const std::int8_t *tile[kW], *at[kW];
    Vec total[R][kW];
    for (int v = 0; v < kW; ++v) {
      const int lane = (first + v) * kLanes;
      tile[v] = tiles[lane / kTile];
      at[v] = tile[v] + lane % kTile;
      for (int r = 0; r < R; ++r) total[r][v] = hn::Zero(df);
    }
    for (int g = 0; g < groups; ++g) {
      hn::Vec<I> sum[R][kW];
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < kW; ++v) sum[r][v] = hn::Zero(di);
      for (int n = 0; n < kSteps; ++n) {
        if (n % (kSteps / 2) == 0) parts.next();
        const int d = g * q8_0::kGroup + n * 4;
        TwoPairs k[kW];
        const std::int8_t* const rows[kW] = {at[0] + d * kTile, at[1] + d * kTile};
        key_pairs(rows, k);
        for (int r = 0; r < R; ++r) {
          const auto x = pair_at(codes + d * 4 + r * 2), y = pair_at(codes + d * 4 + 8 + r * 2);
          for (int v = 0; v < kW; ++v) sum[r][v] = add_pairs(k[v].second, y, add_pairs(k[v].first, x, sum[r][v]));
        }
      }
      for (int v = 0; v < kW; ++v) {
        const Vec scale = scales_at(tile[v], head_dim, g * q8_0::kGroup, (first + v) * kLanes % kTile);
        for (int r = 0; r < R; ++r)
          total[r][v] =
              hn::MulAdd(hn::ConvertTo(df, sum[r][v]), hn::Mul(scale, hn::Set(df, steps[g * 4 + r])), total[r][v]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < kW; ++v) hn::StoreU(total[r][v], df, score + r * kBlock + (first + v) * kLanes);
  }
}

// out[r][0 .. value_dim) = correction[r] * out[r] + sum over used slots of weight[r][s] * value[s]
template <int R>
HWY_INLINE void add_coded_values(const float* weight, const std::int8_t* const* tiles, int value_dim,
                                 std::uint64_t used, const Prefetch& prefetch, const float* correction, float* out,
                                 std::size_t out_stride) {
  HWY_ALIGN std::int16_t codes[R][kBlock];
  float step[R];
  Mask in_use[kVectors];
  for (int v = 0; v < kVectors; ++v) in_use[v] = mask_of(used, v);
  for (int c = 0; c < value_dim; c += q8_0::kGroup) {
    Vec scale[kVectors];
    for (int v = 0; v < kVectors; ++v)
      scale[v] = scales_at(tiles[v * kLanes / kTile], value_dim, c, v * kLanes % kTile);
    for (int r = 0; r < R; ++r) {
      Vec x[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        const Vec scaled = hn::Mul(scale[v], hn::LoadU(df, weight + r * kBlock + v * kLanes));
        x[v] = hn::IfThenElseZero(in_use[v], scaled);
      }
      step[r] = store_codes<kVectors>(x, codes[r]);
    }
    for (int part = 0; part < q8_0::kGroup; part += 2 * kLanes) {
      hn::Vec<I> sum[R][2];
      for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = hn::Zero(di);
      for (int t = 0; t < 4; ++t) {
        if ((used >> (t * kTile) & 0xffff) == 0) continue;
        Prefetch::Piece lines = c + part == 0 ? prefetch.whole(t, kTile / 2) : Prefetch::Piece{};
        const std::int8_t* row = tiles[t] + c + part;
        for (int s = t * kTile; s < (t + 1) * kTile; s += 2, row += 2 * value_dim) {
          lines.next();
          const TwoPairs v = value_pairs(row, row + value_dim);
          for (int r = 0; r < R; ++r) {
            const auto x = pair_at(codes[r] + s);
            sum[r][0] = add_pairs(v.first, x, sum[r][0]);
            sum[r][1] = add_pairs(v.second, x, sum[r][1]);
          }
        }
      }
      for (int r = 0; r < R; ++r)
        for (int w = 0; w < 2; ++w) {
          float* const to = out + static_cast<std::size_t>(r) * out_stride + c + part + w * kLanes;
          hn::StoreU(hn::MulAdd(hn::Set(df, step[r]), hn::ConvertTo(df, sum[r][w]),
                                hn::Mul(hn::Set(df, correction[r]), hn::LoadU(df, to))),
                     df, to);
        }
    }
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
