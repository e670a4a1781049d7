// The kernels of q4_0 and q4 (cache/formats/q4.h), in integers: kNibbleKernels<kRotated>.
//
//   keys:    score = sum over groups of 32 dimensions of  key scale * query step * sum(key code * query code)
//   values:  out  += step * sum over slots of  value code * weight code,  where a weight includes its slot's scale
//
// A query code has 8 bits: its step is the largest of 32 dimensions / 127, so its rounding is 1/16 of that of the keys.
// A weight code has 16 bits, in two bytes, so that small weights of a block count. Sums are exact: stored codes are
// 0 .. 15, the codes' zero, 8, is subtracted from the sum. Of a rotated format the query is transformed like the keys,
// and the sum of the values is transformed back once per row (ValueKernels::finish).

#if defined(PALIMPSEST_ATTENTION_NIBBLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_NIBBLES_INL_H_
#undef PALIMPSEST_ATTENTION_NIBBLES_INL_H_
#else
#define PALIMPSEST_ATTENTION_NIBBLES_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "palimpsest/attention/kernels.h"
#include "palimpsest/attention/rotate-inl.h"
#include "palimpsest/cache/formats/q4.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

using NibbleBytes = hn::Repartition<std::uint8_t, F>;
using CodeBytes = hn::Repartition<std::int8_t, F>;

// sum + code[4 i] * x[4 i] + ... + code[4 i + 3] * x[4 i + 3], codes of 4 bits
HWY_INLINE hn::Vec<I> add_quads(hn::Vec<NibbleBytes> code, hn::Vec<CodeBytes> x, hn::Vec<I> sum) {
#if HWY_TARGET <= HWY_AVX2 && HWY_TARGET > HWY_AVX3_DL
  const hn::Repartition<std::int16_t, F> d16;  // 15 * 128 * 2 fits
  return hn::Add(sum, hn::WidenMulPairwiseAdd(di, hn::SatWidenMulPairwiseAdd(d16, code, x), hn::Set(d16, 1)));
#else
  return hn::SumOfMulQuadAccumulate(di, code, x, sum);
#endif
}

HWY_INLINE hn::Vec<CodeBytes> quad_at(const std::int8_t* codes) {
  std::int32_t four;
  hwy::CopyBytes<4>(codes, &four);
  return hn::BitCast(CodeBytes(), hn::Set(di, four));
}

// Scales of the group of dimension d, for kLanes slots from `lane` on.
HWY_INLINE Vec nibble_scales(const std::byte* tile, int dim, int d, int lane) {
  return load(reinterpret_cast<const hwy::float16_t*>(tile + nibbles::scale_place(dim, lane, d)));
}

// The step of N vectors for codes up to `largest`, and its inverse. An infinite or NaN float makes it infinite or NaN.
template <int N>
HWY_INLINE float step_of(const Vec* x, float largest, Vec& inverse) {
  hn::Vec<I> top = hn::Zero(di);  // bits of floats that are not negative have their order, and NaN is the largest
  for (int n = 0; n < N; ++n) top = hn::Max(top, hn::BitCast(di, hn::Abs(x[n])));
  const float max = hwy::BitCastScalar<float>(hn::ReduceMax(di, top));
  inverse = hn::Set(df, max > 1e-30f ? largest / max : 0.0f);
  return max * (1 / largest);
}

// The codes of a query among four rows, in UnitMemory::query_codes: codes [head_dim / 4][4 rows][4], then what sums
// begin with, -8 * the sum of a group's codes: [head_dim / 32][4 rows].
struct QueryCodes {
  std::int8_t* codes;
  std::int32_t* begin;
  float* steps;

  // Has the codes of the four rows from `first` on.
  QueryCodes(const Unit& u, int first, bool of_sinks) {
    const UnitMemory& m = u.memory;
    const int dim = u.shape().head_dim;
    std::int16_t* const memory = (of_sinks ? m.sink_query_codes : m.query_codes) + first * dim;
    codes = reinterpret_cast<std::int8_t*>(memory);
    begin = reinterpret_cast<std::int32_t*>(memory + 2 * dim);
    steps = (of_sinks ? m.sink_query_steps : m.query_steps) + first * (dim / nibbles::kGroup);
  }
};

// nibbles::transform, in vectors: the same bits.
HWY_INLINE void transform_rows(float* data, int rows, int width) {
  const int block = nibbles::block_of(rows), all = rows * width;
  for (int half = 1; half < block; half *= 2) {
    const int pair = half * width;
    for (float* a = data; a < data + all; a += 2 * pair) {
      if (pair % kLanes != 0) {
        for (int i = 0; i < pair; ++i) {
          const float x = a[i], y = a[i + pair];
          a[i] = x + y;
          a[i + pair] = x - y;
        }
        continue;
      }
      for (int i = 0; i < pair; i += kLanes) {
        const Vec x = hn::LoadU(df, a + i), y = hn::LoadU(df, a + i + pair);
        hn::StoreU(hn::Add(x, y), df, a + i);
        hn::StoreU(hn::Sub(x, y), df, a + i + pair);
      }
    }
  }
  const Vec factor = hn::Set(df, 1 / std::sqrt(static_cast<float>(block)));
  for (int i = 0; i < all; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(df, data + i), factor), df, data + i);
}

template <bool kRotated>
void encode_nibble_query(const Unit& u, int row, bool of_sinks) {
  const int dim = u.shape().head_dim, lane = row % 4;
  const QueryCodes to(u, row / 4 * 4, of_sinks);
  if (kRotated) transform_rows(u.memory.row, dim, 1);
  constexpr int kParts = nibbles::kGroup / kLanes;
  const hn::Rebind<std::int8_t, F> dc;
  HWY_ALIGN std::int8_t codes[nibbles::kGroup];
  for (int first = 0; first < dim; first += nibbles::kGroup) {
    Vec x[kParts], inverse;
    for (int n = 0; n < kParts; ++n) x[n] = hn::LoadU(df, u.memory.row + first + n * kLanes);
    const int group = first / nibbles::kGroup * 4 + lane;
    to.steps[group] = step_of<kParts>(x, 127, inverse);
    hn::Vec<I> sum = hn::Zero(di);
    for (int n = 0; n < kParts; ++n) {
      const hn::Vec<I> code = hn::NearestInt(hn::Mul(x[n], inverse));
      sum = hn::Add(sum, code);
      hn::StoreU(hn::DemoteTo(dc, code), dc, codes + n * kLanes);
    }
    to.begin[group] = -nibbles::kZero * hn::ReduceSum(di, sum);
    for (int d = 0; d < nibbles::kGroup; d += 4) hwy::CopyBytes<4>(codes + d, to.codes + (first + d) * 4 + lane * 4);
  }
}

// score[r][s] = q[r] . key[s] for R rows, of four from lane 0 on, and a block of four tiles.
template <int R>
HWY_INLINE void dot_nibbles(const QueryCodes& q, int dim, const std::byte* const* tiles, const Prefetch& prefetch,
                            float* HWY_RESTRICT score) {
  constexpr int kW = kWide / 2;
  const int groups = dim / nibbles::kGroup;
  const NibbleBytes du8;
  BlockPrefetch parts(prefetch, kVectors / kW * groups);
  for (int first = 0; first < kVectors; first += kW) {
    const std::byte *tile[kW], *at[kW];
    Vec total[R][kW];
    for (int v = 0; v < kW; ++v) {
      const int lane = (first + v) * kLanes;
      tile[v] = tiles[lane / kTile];
      at[v] = tile[v] + lane % kTile * 4;
      for (int r = 0; r < R; ++r) total[r][v] = hn::Zero(df);
    }
    for (int g = 0; g < groups; ++g) {
      parts.next();
      hn::Vec<I> sum[R][kW];
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < kW; ++v) sum[r][v] = hn::Set(di, q.begin[g * 4 + r]);
      for (int d = g * nibbles::kGroup; d < (g + 1) * nibbles::kGroup; d += 8) {
        hn::Vec<NibbleBytes> low[kW], high[kW];
        for (int v = 0; v < kW; ++v) {
          const auto both = hn::LoadU(du8, reinterpret_cast<const std::uint8_t*>(at[v]) + d * (kTile / 2));
          low[v] = hn::And(both, hn::Set(du8, std::uint8_t{15}));
          high[v] = hn::ShiftRight<4>(both);
        }
        for (int r = 0; r < R; ++r) {
          const auto x = quad_at(q.codes + d * 4 + r * 4), y = quad_at(q.codes + d * 4 + 16 + r * 4);
          for (int v = 0; v < kW; ++v) sum[r][v] = add_quads(high[v], y, add_quads(low[v], x, sum[r][v]));
        }
      }
      for (int v = 0; v < kW; ++v) {
        const Vec scale = nibble_scales(tile[v], dim, g * nibbles::kGroup, (first + v) * kLanes % kTile);
        for (int r = 0; r < R; ++r)
          total[r][v] =
              hn::MulAdd(hn::ConvertTo(df, sum[r][v]), hn::Mul(scale, hn::Set(df, q.steps[g * 4 + r])), total[r][v]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < kW; ++v) hn::StoreU(total[r][v], df, score + r * kBlock + (first + v) * kLanes);
  }
}

inline void dot_nibble_keys(const Unit& u, const Block& b, const Prefetch& prefetch) {
  score_rows(u, b, prefetch, [&]<int R>(bool of_sinks, int r, const Prefetch& part, float* score) HWY_ATTR {
    dot_nibbles<R>(QueryCodes(u, r, of_sinks), u.shape().head_dim, b.key, part, score);
  });
}

// The weights of a row in a block, times the slots' scales: 256 * high + low, times a step.
struct WeightCodes {
  HWY_ALIGN std::int8_t high[kBlock], low[kBlock];
  std::int32_t begin;  // -8 * the sum of the codes
  float step;

  HWY_INLINE void encode(const Vec* x) {
    Vec inverse;
    step = step_of<kVectors>(x, 127 * 256 + 127, inverse);
    const hn::Rebind<std::int8_t, F> dc;
    hn::Vec<I> sum = hn::Zero(di);
    for (int v = 0; v < kVectors; ++v) {
      const auto code = hn::NearestInt(hn::Mul(x[v], inverse));
      sum = hn::Add(sum, code);
      const auto upper = hn::ShiftRight<8>(hn::Add(code, hn::Set(di, 128)));
      hn::StoreU(hn::DemoteTo(dc, upper), dc, high + v * kLanes);
      hn::StoreU(hn::DemoteTo(dc, hn::Sub(code, hn::ShiftLeft<8>(upper))), dc, low + v * kLanes);
    }
    begin = -nibbles::kZero * hn::ReduceSum(di, sum);
  }
};

// out[r][0 .. 31] = correction[r] * out[r] + sum over used slots of weight[r][s] * value[s], for a group of dimensions
// from c on. R: rows whose sums fit into the registers.
template <int R>
HWY_INLINE void add_nibbles(const WeightCodes* weight, const std::byte* const* tiles, int dim, int c,
                            std::uint64_t used, const Prefetch& prefetch, const float* correction, float* out,
                            std::size_t out_stride) {
  const NibbleBytes du8;
  for (int part = 0; part < 16; part += kLanes) {
    hn::Vec<I> high[R][2], low[R][2];
    for (int r = 0; r < R; ++r) high[r][0] = high[r][1] = low[r][0] = low[r][1] = hn::Zero(di);
    for (int t = 0; t < 4; ++t) {
      if ((used >> (t * kTile) & 0xffff) == 0) continue;
      Prefetch::Piece lines = c + part == 0 ? prefetch.whole(t, 4) : Prefetch::Piece{};
      for (int s = 0; s < kTile; s += 4) {
        lines.next();
        const auto both =
            hn::LoadU(du8, reinterpret_cast<const std::uint8_t*>(tiles[t]) + s / 4 * dim * 2 + c * 2 + part * 4);
        const auto n0 = hn::And(both, hn::Set(du8, std::uint8_t{15})), n1 = hn::ShiftRight<4>(both);
        for (int r = 0; r < R; ++r) {
          const auto x = quad_at(weight[r].high + t * kTile + s), y = quad_at(weight[r].low + t * kTile + s);
          high[r][0] = add_quads(n0, x, high[r][0]);
          high[r][1] = add_quads(n1, x, high[r][1]);
          low[r][0] = add_quads(n0, y, low[r][0]);
          low[r][1] = add_quads(n1, y, low[r][1]);
        }
      }
    }
    for (int r = 0; r < R; ++r)
      for (int w = 0; w < 2; ++w) {
        float* const to = out + static_cast<std::size_t>(r) * out_stride + c + part + w * 16;
        const auto sum = hn::Add(hn::Add(hn::ShiftLeft<8>(high[r][w]), low[r][w]), hn::Set(di, weight[r].begin));
        hn::StoreU(hn::MulAdd(hn::Set(df, weight[r].step), hn::ConvertTo(df, sum),
                              hn::Mul(hn::Set(df, correction[r]), hn::LoadU(df, to))),
                   df, to);
      }
  }
}

inline void add_nibble_values(const Unit& u, const Block& b, const Prefetch& prefetch) {
  const int dim = u.shape().value_dim;
  const std::size_t stride = static_cast<std::size_t>(u.value_stride());
  Mask in_use[kVectors];
  for (int v = 0; v < kVectors; ++v) in_use[v] = mask_of(b.used, v);
  by_four_rows(u.rows(), [&]<int R>(int first) HWY_ATTR {
    WeightCodes codes[R];
    for (int c = 0; c < dim; c += nibbles::kGroup) {
      Vec scale[kVectors];
      for (int v = 0; v < kVectors; ++v)
        scale[v] = nibble_scales(b.value[v * kLanes / kTile], dim, c, v * kLanes % kTile);
      for (int r = 0; r < R; ++r) {
        Vec x[kVectors];
        const float* const weight = u.memory.score + (first + r) * kBlock;
        for (int v = 0; v < kVectors; ++v)
          x[v] = hn::IfThenElseZero(in_use[v], hn::Mul(scale[v], hn::LoadU(df, weight + v * kLanes)));
        codes[r].encode(x);
      }
      constexpr int kRowsAtOnce = kWide == 4 ? R : R > 1 && R % 2 == 0 ? 2 : 1;
      for (int r = 0; r < R; r += kRowsAtOnce) {
        const int row = first + r;
        add_nibbles<kRowsAtOnce>(codes + r, b.value, dim, c, b.used, row == 0 ? prefetch : Prefetch(),
                                 u.memory.correction + row,
                                 u.memory.value + static_cast<std::ptrdiff_t>(row) * u.value_stride(), stride);
      }
    }
  });
}

// Four-byte lanes of bytes, and the codes of one byte of each lane as floats, times a scale.
using Words = hn::RebindToUnsigned<I>;
HWY_INLINE Vec code_in(hn::Vec<Words> words, int shift, Vec scale) {
  const Words du;
  const auto code = hn::BitCast(di, hn::And(hn::ShiftRightSame(words, shift), hn::Set(du, 15u)));
  return hn::Mul(hn::ConvertTo(df, hn::Sub(code, hn::Set(di, nibbles::kZero))), scale);
}
HWY_INLINE hn::Vec<Words> words_at(const std::byte* at) {
  const Words du;
  return hn::BitCast(du, hn::LoadU(NibbleBytes(), reinterpret_cast<const std::uint8_t*>(at)));
}

template <bool kRotated>
void widen_nibble_keys(const std::byte* tile, int dim, float* out) {
  for (int n = 0; n < kTile; n += kLanes) {
    Vec scale = hn::Zero(df);
    for (int d = 0; d < dim; d += 8) {
      if (d % nibbles::kGroup == 0) scale = nibble_scales(tile, dim, d, n);
      const auto words = words_at(tile + d * (kTile / 2) + n * 4);
      for (int i = 0; i < 4; ++i) {
        hn::StoreU(code_in(words, 8 * i, scale), df, out + (d + i) * kTile + n);
        hn::StoreU(code_in(words, 8 * i + 4, scale), df, out + (d + 4 + i) * kTile + n);
      }
    }
  }
  if (kRotated) transform_rows(out, dim, kTile);
}

template <bool kRotated>
void rotate_nibble_keys(const AttentionShape& shape, const std::byte* tile, std::ptrdiff_t, const float* rope_tiles,
                        float* out) {
  widen_nibble_keys<kRotated>(tile, shape.head_dim, out);
  rotate_tile(shape, out, 0, rope_tiles, out);
}

inline void widen_nibble_values(const std::byte* tile, int dim, std::uint32_t used, float* out, int stride) {
  for (; used != 0; used &= used - 1) {
    const int s = std::countr_zero(used);
    float* const row = out + s * stride;
    for (int c = 0; c < dim; c += nibbles::kGroup) {
      std::uint16_t bits;
      std::memcpy(&bits, tile + nibbles::scale_place(dim, s, c), sizeof bits);
      const Vec scale = hn::Set(df, f32_from_f16(bits));
      for (int part = 0; part < 16; part += kLanes) {
        const auto words = words_at(tile + s / 4 * dim * 2 + c * 2 + part * 4);
        hn::StoreU(code_in(words, s % 4 * 8, scale), df, row + c + part);
        hn::StoreU(code_in(words, s % 4 * 8 + 4, scale), df, row + c + 16 + part);
      }
    }
  }
}

template <bool kRotated>
void store_nibble_keys(std::byte* tile, int dim, std::uint32_t lanes, const float* rows, float*) {
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    nibbles::Format<kRotated>::encode_key(rows + static_cast<std::ptrdiff_t>(lane) * dim, dim, tile, lane);
  }
}
template <bool kRotated>
void store_nibble_value(std::byte* tile, int dim, int lane, const float* row) {
  nibbles::Format<kRotated>::encode_value(row, dim, tile, lane);
}

inline void transform_back(float* row, int dim) {
  transform_rows(row, dim, 1);
}

template <bool kRotated>
inline constexpr FormatKernels kNibbleKernels = {.key = {.encode_query = encode_nibble_query<kRotated>,
                                                         .dot = dot_nibble_keys,
                                                         .dot_rotating = nullptr,
                                                         .widen = widen_nibble_keys<kRotated>,
                                                         .rotate = rotate_nibble_keys<kRotated>,
                                                         .store = store_nibble_keys<kRotated>,
                                                         .narrow = nullptr,
                                                         .rotate_lanes = nullptr},
                                                 .value = {.add = add_nibble_values,
                                                           .widen = widen_nibble_values,
                                                           .store = store_nibble_value<kRotated>,
                                                           .finish = kRotated ? transform_back : nullptr}};

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
