// The kernels of one format and one instruction set: kFormatKernels<T>, for elements of type T; std::int8_t: q8_0.

#if defined(PALIMPSEST_ATTENTION_FORMAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_FORMAT_INL_H_
#undef PALIMPSEST_ATTENTION_FORMAT_INL_H_
#else
#define PALIMPSEST_ATTENTION_FORMAT_INL_H_
#endif

#include "palimpsest/attention/integers-inl.h"
#include "palimpsest/attention/kernels.h"
#include "palimpsest/attention/rotate-inl.h"
#include "palimpsest/attention/transpose-inl.h"
#include "palimpsest/cache/formats/q8_0.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE const T* elements(const std::byte* tile) {
  return reinterpret_cast<const T*>(tile);
}
template <class T>
HWY_INLINE T* elements(std::byte* tile) {
  return reinterpret_cast<T*>(tile);
}

// Keys.

template <class T>
void dot_keys(const Unit& u, const Block& b, const Prefetch& prefetch) {
  PlainKeys<T> keys;
  for (int t = 0; t < 4; ++t) keys.tile[t] = elements<T>(b.key[t]);
  score_tiles(u, b, keys, prefetch);
}

#if HWY_TARGET <= HWY_AVX2  // integers-inl.h
inline void encode_query_of(const Unit& u, int row, bool of_sinks) {
  const UnitMemory& m = u.memory;
  const int dim = u.shape().head_dim, first = row / 4 * 4, lane = row % 4;
  encode_query(m.row, dim, (of_sinks ? m.sink_query_codes : m.query_codes) + first * dim + lane * 2,
               (of_sinks ? m.sink_query_steps : m.query_steps) + first * (dim / q8_0::kGroup) + lane);
}

inline void dot_integers(const Unit& u, const Block& b, const Prefetch& prefetch) {
  const std::int8_t* tiles[4];
  for (int t = 0; t < 4; ++t) tiles[t] = elements<std::int8_t>(b.key[t]);
  const UnitMemory& m = u.memory;
  const int dim = u.shape().head_dim;
  score_rows(u, b, prefetch, [&]<int R>(bool of_sinks, int r, const Prefetch& part, float* score) HWY_ATTR {
    dot_coded_queries<R>((of_sinks ? m.sink_query_codes : m.query_codes) + r * dim,
                         (of_sinks ? m.sink_query_steps : m.query_steps) + r * (dim / q8_0::kGroup), dim, tiles, part,
                         score);
  });
}

inline void add_integers(const Unit& u, const Block& b, const Prefetch& prefetch) {
  const std::int8_t* tiles[4];
  for (int t = 0; t < 4; ++t) tiles[t] = elements<std::int8_t>(b.value[t]);
  const std::size_t stride = static_cast<std::size_t>(u.value_stride());
  by_four_rows(u.rows(), [&]<int R>(int r) HWY_ATTR {
    add_coded_values<R>(u.memory.score + r * kBlock, tiles, u.shape().value_dim, b.used, r == 0 ? prefetch : Prefetch(),
                        u.memory.correction + r, u.memory.value + r * stride, stride);
  });
}
#endif

template <class T>
void dot_rotating_keys(const Unit& u, const Block& b, const Prefetch& prefetch) {
  RotatingKeys<T> keys;
  for (int t = 0; t < 4; ++t) keys.tile[t] = elements<T>(b.key[t]);
  std::copy_n(b.rope_tile, 4, keys.rope_tile);
  keys.half = u.half() / static_cast<std::ptrdiff_t>(sizeof(T));
  score_tiles(u, b, keys, prefetch);
}

template <class T>
void widen_keys_of(const std::byte* tile, int dim, float* out) {
  widen_tile(elements<T>(tile), dim, out);
}

template <class T>
void rotate_keys_of(const AttentionShape& shape, const std::byte* tile, std::ptrdiff_t half, const float* rope_tiles,
                    float* out) {
  if constexpr (kIsScaled<T>) {
    widen_tile(elements<T>(tile), shape.head_dim, out);
    rotate_tile(shape, out, 0, rope_tiles, out);
  } else {
    rotate_tile(shape, elements<T>(tile), half / static_cast<std::ptrdiff_t>(sizeof(T)), rope_tiles, out);
  }
}

template <class T>
void store_keys(std::byte* tile, int dim, std::uint32_t lanes, const float* rows, float* scratch) {
  if constexpr (kIsScaled<T>) {
    for (; lanes != 0; lanes &= lanes - 1) {
      const int lane = std::countr_zero(lanes);
      q8_0::encode_key(rows + static_cast<std::ptrdiff_t>(lane) * dim, dim, tile, lane);
    }
  } else {
    T* const rounded = reinterpret_cast<T*>(scratch);
    T* const out = elements<T>(tile);
    const std::ptrdiff_t all = static_cast<std::ptrdiff_t>(kTile) * dim;
    if (std::popcount(lanes) > 1 && dim % kTile == 0) {
      for (std::uint32_t bits = lanes; bits != 0; bits &= bits - 1) {
        const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(std::countr_zero(bits)) * dim;
        round_row(rows + row, dim, rounded + row);
      }
      return transpose_keys(rounded, lanes, dim, out, rounded + all);
    }
    for (; lanes != 0; lanes &= lanes - 1) {
      const int lane = std::countr_zero(lanes);
      round_row(rows + static_cast<std::ptrdiff_t>(lane) * dim, dim, rounded);
      for (int d = 0; d < dim; ++d) out[d * kTile + lane] = rounded[d];
    }
  }
}

template <class T>
void narrow_keys(const float* tile, int dim, std::byte* out) {
  round_row(tile, dim * kTile, elements<T>(out));
}

template <class T>
HWY_INLINE void store_rounded(Vec x, T* to) {
  const hn::Rebind<T, F> dt;
  hn::StoreU(hn::DemoteTo(dt, x), dt, to);
}
HWY_INLINE void store_rounded(Vec x, float* to) {
  hn::StoreU(x, df, to);
}

// The other lanes are written back unchanged.
template <class T>
void rotate_lanes(std::byte* tile, RopeKind rope, int pairs, int begin, int end, const float* cos_sin) {
  const bool halves = rope == RopeKind::kHalves;
  for (int n = 0; n < kTile; n += kLanes) {
    if (end <= n || begin >= n + kLanes) continue;
    const Mask ours = hn::AndNot(hn::FirstN(df, static_cast<std::size_t>(std::max(0, begin - n))),
                                 hn::FirstN(df, static_cast<std::size_t>(std::min(kLanes, end - n))));
    for (int p = 0; p < pairs; ++p) {
      T* const a = elements<T>(tile) + (halves ? p : 2 * p) * kTile + n;
      T* const b = elements<T>(tile) + (halves ? p + pairs : 2 * p + 1) * kTile + n;
      const Vec cos = hn::Set(df, cos_sin[p]), sin = hn::Set(df, cos_sin[pairs + p]);
      const Vec x = load(a), y = load(b);
      store_rounded(hn::IfThenElse(ours, hn::NegMulAdd(y, sin, hn::Mul(x, cos)), x), a);
      store_rounded(hn::IfThenElse(ours, hn::MulAdd(x, sin, hn::Mul(y, cos)), y), b);
    }
  }
}

// Values.

template <class T>
void add_values_of(const Unit& u, const Block& b, const Prefetch& prefetch) {
  ValueTiles<T> values;
  values.stride = u.shape().value_dim;
  for (int t = 0; t < 4; ++t) values.tile[t] = elements<T>(b.value[t]);
  add_rows(u, values, b.used, prefetch);
}

template <class T>
void widen_values_of(const std::byte* tile, int dim, std::uint32_t used, float* out, int stride) {
  const T* const from = elements<T>(tile);
  if constexpr (kIsScaled<T>) {
    HWY_ALIGN float scale[kTile];
    for (int first = 0; first < dim; first += q8_0::kGroup) {
      for (int n = 0; n < kTile; n += kLanes) hn::Store(scales_at(from, dim, first, n), df, scale + n);
      for (std::uint32_t bits = used; bits != 0; bits &= bits - 1) {
        const int s = std::countr_zero(bits);
        for (int d = first; d < first + q8_0::kGroup; d += kLanes)
          hn::StoreU(hn::Mul(hn::Set(df, scale[s]), load(from + s * dim + d)), df, out + s * stride + d);
      }
    }
    return;
  }
  for (; used != 0; used &= used - 1) {
    const int s = std::countr_zero(used);
    int d = 0;
    for (; d + kLanes <= dim; d += kLanes) hn::StoreU(load(from + s * dim + d), df, out + s * stride + d);
    if (d < dim) hn::StoreN(load_first(from + s * dim + d, dim - d), df, out + s * stride + d, dim - d);
  }
}

template <class T>
void store_value(std::byte* tile, int dim, int lane, const float* row) {
  if constexpr (kIsScaled<T>)
    q8_0::encode_value(row, dim, tile, lane);
  else
    round_row(row, dim, elements<T>(tile) + static_cast<std::ptrdiff_t>(lane) * dim);
}

template <class T>
constexpr FormatKernels format_kernels() {
  FormatKernels k{};
  k.key = {.encode_query = nullptr,
           .dot = dot_keys<T>,
           .dot_rotating = nullptr,
           .widen = widen_keys_of<T>,
           .rotate = rotate_keys_of<T>,
           .store = store_keys<T>,
           .narrow = nullptr,
           .rotate_lanes = nullptr};
  k.value = {.add = add_values_of<T>, .widen = widen_values_of<T>, .store = store_value<T>, .finish = nullptr};
  if constexpr (!kIsScaled<T>) {
    k.key.dot_rotating = dot_rotating_keys<T>;
    k.key.narrow = narrow_keys<T>;
    k.key.rotate_lanes = rotate_lanes<T>;
  }
#if HWY_TARGET <= HWY_AVX2
  if constexpr (kIsScaled<T>) {
    k.key.encode_query = encode_query_of;
    k.key.dot = dot_integers;
    k.value.add = add_integers;
  }
#endif
  return k;
}
template <class T>
inline constexpr FormatKernels kFormatKernels = format_kernels<T>();

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
