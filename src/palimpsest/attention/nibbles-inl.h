// The kernels of formats of 4 bits and fewer, in integers: kCodeKernels<Codes>. Codes says how a format packs its
// codes: Nibbles<kRotated> is q4_0 and q4 (cache/formats/q4.h), Planes<kBits> is q3 and q2 (planes-inl.h).
//
//   keys:    score = sum over groups of 32 dimensions of  key scale * query step * sum(key code * query code)
//   values:  out  += step * sum over slots of  value code * weight code,  where a weight includes its slot's scale
//
// A query code has 8 bits: its step is the largest of 32 dimensions / 127, so its rounding is 1/16 of that of the keys.
// A weight code has 16 bits, in two bytes, so that small weights of a block count. Sums are exact: unpacked codes are
// 0 .. 15, the codes' zero (8 of q4) is subtracted from the sum. Of a rotated format the query is transformed like the
// keys, and the sum of the values is transformed back once per row (ValueKernels::finish).

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
#include <utility>

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

using Words = hn::RebindToUnsigned<I>;  // lanes of four bytes

// How q4_0 and q4 pack their codes. A code's level is kLevels * code - kZero of values, code - kZero of keys; with
// kOffsets it is one less in groups whose scale has its last bit set.
template <bool kOfRotated>
struct Nibbles {
  using Format = nibbles::Format<kOfRotated>;
  static constexpr bool kRotated = kOfRotated;
  static constexpr int kBits = 4, kZero = nibbles::kZero, kLevels = 1;
  static constexpr bool kOffsets = false;
  static constexpr std::ptrdiff_t scale_place(int dim, int lane, int d) { return nibbles::scale_place(dim, lane, d); }

  // Codes of kStep dimensions of kLanes keys, in quads: four dimensions of a key are a lane of four bytes. `at`: of the
  // first of the dimensions and of the keys.
  static constexpr int kStep = 8;
  struct Keys {
    hn::Vec<NibbleBytes> both;
  };
  static HWY_INLINE Keys keys(const std::byte* at) {
    return {hn::LoadU(NibbleBytes(), reinterpret_cast<const std::uint8_t*>(at))};
  }
  template <int kQuad>
  static HWY_INLINE hn::Vec<NibbleBytes> quad(const Keys& k) {
    return kQuad == 0 ? hn::And(k.both, hn::Set(NibbleBytes(), std::uint8_t{15})) : hn::ShiftRight<4>(k.both);
  }

  // Codes of dimensions c + part .. and c + part + 16 .., kLanes each, of the four values from slot s on: a dimension
  // is a lane of four bytes. c begins a group; part < 16.
  static HWY_INLINE std::pair<hn::Vec<NibbleBytes>, hn::Vec<NibbleBytes>> values(const std::byte* tile, int dim, int s,
                                                                                 int c, int part) {
    const auto both =
        hn::LoadU(NibbleBytes(), reinterpret_cast<const std::uint8_t*>(tile) + s / 4 * dim * 2 + c * 2 + part * 4);
    return {hn::And(both, hn::Set(NibbleBytes(), std::uint8_t{15})), hn::ShiftRight<4>(both)};
  }
};

// Calls run<0>(), run<1>(), ... of the quads of Codes::Keys.
template <class Codes, class Run>
HWY_INLINE void each_quad(const Run& run) {
  [&]<std::size_t... kQuad>(std::index_sequence<kQuad...>) HWY_ATTR __attribute__((always_inline)) {
    (run.template operator()<static_cast<int>(kQuad)>(), ...);
  }
  (std::make_index_sequence<Codes::kStep / 4>());
}

// Scales of the group of dimension d, for kLanes slots from `lane` on.
template <class Codes>
HWY_INLINE Vec code_scales(const std::byte* tile, int dim, int d, int lane) {
  return load(reinterpret_cast<const hwy::float16_t*>(tile + Codes::scale_place(dim, lane, d)));
}

// Likewise: -1 where the levels are one less, else 0.
template <class Codes>
HWY_INLINE hn::Vec<I> code_offsets(const std::byte* tile, int dim, int d, int lane) {
  if constexpr (!Codes::kOffsets) return hn::Zero(di);
  const hn::Rebind<std::uint16_t, F> d16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(tile + Codes::scale_place(dim, lane, d)));
  return hn::Neg(hn::PromoteTo(di, hn::And(bits, hn::Set(d16, std::uint16_t{1}))));
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

// The codes of a query among four rows, in UnitMemory::query_codes: codes [head_dim / 4][4 rows][4], then the
// sums of each group's codes: [head_dim / 32][4 rows].
struct QueryCodes {
  std::int8_t* codes;
  std::int32_t* sums;
  float* steps;

  // Has the codes of the four rows from `first` on.
  QueryCodes(const Unit& u, int first, bool of_sinks) {
    const UnitMemory& m = u.memory;
    const int dim = u.shape().head_dim;
    std::int16_t* const memory = (of_sinks ? m.sink_query_codes : m.query_codes) + first * dim;
    codes = reinterpret_cast<std::int8_t*>(memory);
    sums = reinterpret_cast<std::int32_t*>(memory + 2 * dim);
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

template <class Codes>
void encode_query_codes(const Unit& u, int row, bool of_sinks) {
  const int dim = u.shape().head_dim, lane = row % 4;
  const QueryCodes to(u, row / 4 * 4, of_sinks);
  if (Codes::kRotated) transform_rows(u.memory.row, dim, 1);
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
    to.sums[group] = hn::ReduceSum(di, sum);
    for (int d = 0; d < nibbles::kGroup; d += 4) hwy::CopyBytes<4>(codes + d, to.codes + (first + d) * 4 + lane * 4);
  }
}

// score[r][s] = q[r] . key[s] for R rows, of four from lane 0 on, and a block of four tiles.
template <class Codes, int R>
HWY_INLINE void dot_codes(const QueryCodes& q, int dim, const std::byte* const* tiles, const Prefetch& prefetch,
                          float* HWY_RESTRICT score) {
  constexpr int kW = kWide / 2;
  const int groups = dim / nibbles::kGroup;
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
        for (int v = 0; v < kW; ++v) sum[r][v] = hn::Set(di, -Codes::kZero * q.sums[g * 4 + r]);
      for (int d = g * nibbles::kGroup; d < (g + 1) * nibbles::kGroup; d += Codes::kStep) {
        typename Codes::Keys keys[kW];
        for (int v = 0; v < kW; ++v) keys[v] = Codes::keys(at[v] + d * (kTile * Codes::kBits / 8));
        each_quad<Codes>([&]<int kQuad>() HWY_ATTR __attribute__((always_inline)) {
          hn::Vec<NibbleBytes> code[kW];
          for (int v = 0; v < kW; ++v) code[v] = Codes::template quad<kQuad>(keys[v]);
          for (int r = 0; r < R; ++r) {
            const auto x = quad_at(q.codes + d * 4 + kQuad * 16 + r * 4);
            for (int v = 0; v < kW; ++v) sum[r][v] = add_quads(code[v], x, sum[r][v]);
          }
        });
      }
      for (int v = 0; v < kW; ++v) {
        const Vec scale = code_scales<Codes>(tile[v], dim, g * nibbles::kGroup, (first + v) * kLanes % kTile);
        const auto offset = code_offsets<Codes>(tile[v], dim, g * nibbles::kGroup, (first + v) * kLanes % kTile);
        for (int r = 0; r < R; ++r) {
          if (Codes::kOffsets) sum[r][v] = hn::Sub(sum[r][v], hn::And(offset, hn::Set(di, q.sums[g * 4 + r])));
          total[r][v] =
              hn::MulAdd(hn::ConvertTo(df, sum[r][v]), hn::Mul(scale, hn::Set(df, q.steps[g * 4 + r])), total[r][v]);
        }
      }
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < kW; ++v) hn::StoreU(total[r][v], df, score + r * kBlock + (first + v) * kLanes);
  }
}

template <class Codes>
void dot_code_keys(const Unit& u, const Block& b, const Prefetch& prefetch) {
  score_rows(u, b, prefetch, [&]<int R>(bool of_sinks, int r, const Prefetch& part, float* score) HWY_ATTR {
    dot_codes<Codes, R>(QueryCodes(u, r, of_sinks), u.shape().head_dim, b.key, part, score);
  });
}

// The weights of a row in a block, times the slots' scales: 256 * high + low, times a step.
struct WeightCodes {
  HWY_ALIGN std::int8_t high[kBlock], low[kBlock];
  std::int32_t begin;  // minus the sum of the codes times what their slots' levels are less than the stored codes
  float step;

  template <class Codes>
  HWY_INLINE void encode(const Vec* x, const hn::Vec<I>* offsets) {
    Vec inverse;
    step = step_of<kVectors>(x, 127 * 256 + 127, inverse);
    const hn::Rebind<std::int8_t, F> dc;
    hn::Vec<I> sum = hn::Zero(di), of_offsets = hn::Zero(di);
    for (int v = 0; v < kVectors; ++v) {
      const auto code = hn::NearestInt(hn::Mul(x[v], inverse));
      sum = hn::Add(sum, code);
      if (Codes::kOffsets) of_offsets = hn::Add(of_offsets, hn::And(offsets[v], code));
      const auto upper = hn::ShiftRight<8>(hn::Add(code, hn::Set(di, 128)));
      hn::StoreU(hn::DemoteTo(dc, upper), dc, high + v * kLanes);
      hn::StoreU(hn::DemoteTo(dc, hn::Sub(code, hn::ShiftLeft<8>(upper))), dc, low + v * kLanes);
    }
    begin = -Codes::kZero * hn::ReduceSum(di, sum);
    if (Codes::kOffsets) begin -= hn::ReduceSum(di, of_offsets);
  }
};

// out[r][0 .. 31] = correction[r] * out[r] + sum over used slots of weight[r][s] * value[s], for a group of dimensions
// from c on. R: rows whose sums fit into the registers.
template <class Codes, int R>
HWY_INLINE void add_codes(const WeightCodes* weight, const std::byte* const* tiles, int dim, int c, std::uint64_t used,
                          const Prefetch& prefetch, const float* correction, float* out, std::size_t out_stride) {
  constexpr int kShift = Codes::kLevels - 1;  // times 1 or 2
  for (int part = 0; part < 16; part += kLanes) {
    hn::Vec<I> high[R][2], low[R][2];
    for (int r = 0; r < R; ++r) high[r][0] = high[r][1] = low[r][0] = low[r][1] = hn::Zero(di);
    for (int t = 0; t < 4; ++t) {
      if ((used >> (t * kTile) & 0xffff) == 0) continue;
      Prefetch::Piece lines = c + part == 0 ? prefetch.whole(t, 4) : Prefetch::Piece{};
      for (int s = 0; s < kTile; s += 4) {
        lines.next();
        const auto [n0, n1] = Codes::values(tiles[t], dim, s, c, part);
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
        const auto codes = hn::Add(hn::ShiftLeft<8>(high[r][w]), low[r][w]);
        const auto sum = hn::Add(hn::ShiftLeft<kShift>(codes), hn::Set(di, weight[r].begin));
        hn::StoreU(hn::MulAdd(hn::Set(df, weight[r].step), hn::ConvertTo(df, sum),
                              hn::Mul(hn::Set(df, correction[r]), hn::LoadU(df, to))),
                   df, to);
      }
  }
}

template <class Codes>
void add_code_values(const Unit& u, const Block& b, const Prefetch& prefetch) {
  const int dim = u.shape().value_dim;
  const std::size_t stride = static_cast<std::size_t>(u.value_stride());
  Mask in_use[kVectors];
  for (int v = 0; v < kVectors; ++v) in_use[v] = mask_of(b.used, v);
  by_four_rows(u.rows(), [&]<int R>(int first) HWY_ATTR {
    WeightCodes codes[R];
    for (int c = 0; c < dim; c += nibbles::kGroup) {
      Vec scale[kVectors];
      hn::Vec<I> offset[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        scale[v] = code_scales<Codes>(b.value[v * kLanes / kTile], dim, c, v * kLanes % kTile);
        offset[v] = code_offsets<Codes>(b.value[v * kLanes / kTile], dim, c, v * kLanes % kTile);
      }
      for (int r = 0; r < R; ++r) {
        Vec x[kVectors];
        const float* const weight = u.memory.score + (first + r) * kBlock;
        for (int v = 0; v < kVectors; ++v)
          x[v] = hn::IfThenElseZero(in_use[v], hn::Mul(scale[v], hn::LoadU(df, weight + v * kLanes)));
        codes[r].template encode<Codes>(x, offset);
      }
      constexpr int kRowsAtOnce = kWide == 4 ? R : R > 1 && R % 2 == 0 ? 2 : 1;
      for (int r = 0; r < R; r += kRowsAtOnce) {
        const int row = first + r;
        add_codes<Codes, kRowsAtOnce>(codes + r, b.value, dim, c, b.used, row == 0 ? prefetch : Prefetch(),
                                      u.memory.correction + row,
                                      u.memory.value + static_cast<std::ptrdiff_t>(row) * u.value_stride(), stride);
      }
    }
  });
}

// The levels of the codes in one byte of each lane as floats, times a scale. offset: of code_offsets().
template <int kLevels, int kZero>
HWY_INLINE Vec levels_in(hn::Vec<NibbleBytes> codes, int byte, Vec scale, hn::Vec<I> offset) {
  const Words du;
  const auto code = hn::BitCast(di, hn::And(hn::ShiftRightSame(hn::BitCast(du, codes), 8 * byte), hn::Set(du, 255u)));
  const auto level = hn::Add(hn::ShiftLeft<kLevels - 1>(code), hn::Sub(offset, hn::Set(di, kZero)));
  return hn::Mul(hn::ConvertTo(df, level), scale);
}

template <class Codes>
void widen_code_keys(const std::byte* tile, int dim, float* out) {
  for (int n = 0; n < kTile; n += kLanes) {
    Vec scale = hn::Zero(df);
    hn::Vec<I> offset = hn::Zero(di);
    for (int d = 0; d < dim; d += Codes::kStep) {
      if (d % nibbles::kGroup == 0) {
        scale = code_scales<Codes>(tile, dim, d, n);
        offset = code_offsets<Codes>(tile, dim, d, n);
      }
      const auto keys = Codes::keys(tile + d * (kTile * Codes::kBits / 8) + n * 4);
      each_quad<Codes>([&]<int kQuad>() HWY_ATTR __attribute__((always_inline)) {
        const auto codes = Codes::template quad<kQuad>(keys);
        for (int i = 0; i < 4; ++i)
          hn::StoreU(levels_in<1, Codes::kZero>(codes, i, scale, offset), df, out + (d + 4 * kQuad + i) * kTile + n);
      });
    }
  }
  if (Codes::kRotated) transform_rows(out, dim, kTile);
}

template <class Codes>
void rotate_code_keys(const AttentionShape& shape, const std::byte* tile, std::ptrdiff_t, const float* rope_tiles,
                      float* out) {
  widen_code_keys<Codes>(tile, shape.head_dim, out);
  rotate_tile(shape, out, 0, rope_tiles, out);
}

template <class Codes>
void widen_code_values(const std::byte* tile, int dim, std::uint32_t used, float* out, int stride) {
  for (; used != 0; used &= used - 1) {
    const int s = std::countr_zero(used);
    float* const row = out + s * stride;
    for (int c = 0; c < dim; c += nibbles::kGroup) {
      std::uint16_t bits;
      std::memcpy(&bits, tile + Codes::scale_place(dim, s, c), sizeof bits);
      const Vec scale = hn::Set(df, f32_from_f16(bits));
      const auto offset = hn::Set(di, Codes::kOffsets ? -(bits & 1) : 0);
      for (int part = 0; part < 16; part += kLanes) {
        const auto [n0, n1] = Codes::values(tile, dim, s, c, part);
        hn::StoreU(levels_in<Codes::kLevels, Codes::kZero>(n0, s % 4, scale, offset), df, row + c + part);
        hn::StoreU(levels_in<Codes::kLevels, Codes::kZero>(n1, s % 4, scale, offset), df, row + c + 16 + part);
      }
    }
  }
}

template <class Codes>
void store_code_keys(std::byte* tile, int dim, std::uint32_t lanes, const float* rows, float*) {
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    Codes::Format::encode_key(rows + static_cast<std::ptrdiff_t>(lane) * dim, dim, tile, lane);
  }
}
template <class Codes>
void store_code_value(std::byte* tile, int dim, int lane, const float* row) {
  Codes::Format::encode_value(row, dim, tile, lane);
}

inline void transform_back(float* row, int dim) {
  transform_rows(row, dim, 1);
}

template <class Codes>
inline constexpr FormatKernels kCodeKernels = {.key = {.encode_query = encode_query_codes<Codes>,
                                                       .dot = dot_code_keys<Codes>,
                                                       .dot_rotating = nullptr,
                                                       .widen = widen_code_keys<Codes>,
                                                       .rotate = rotate_code_keys<Codes>,
                                                       .store = store_code_keys<Codes>,
                                                       .narrow = nullptr,
                                                       .rotate_lanes = nullptr},
                                               .value = {.add = add_code_values<Codes>,
                                                         .widen = widen_code_values<Codes>,
                                                         .store = store_code_value<Codes>,
                                                         .finish = Codes::kRotated ? transform_back : nullptr}};

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
