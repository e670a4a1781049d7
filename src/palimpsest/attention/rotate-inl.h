// Keys rotated while they are read. The cosines and sines of a tile's 16 ranks form a RoPE tile, [2 * pairs][16], with
// the lanes of the key tile.

#if defined(PALIMPSEST_ATTENTION_ROTATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_ROTATE_INL_H_
#undef PALIMPSEST_ATTENTION_ROTATE_INL_H_
#else
#define PALIMPSEST_ATTENTION_ROTATE_INL_H_
#endif

#include <algorithm>

#include "palimpsest/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

// Columns c .. c + 3 of row[0], row[4], row[8], ... in one vector.
HWY_INLINE Vec every_fourth_row(const float* const* row, int c) {
  Vec v = hn::LoadDup128(df, row[0] + c);
  for (int block = 1; block < kLanes / 4; ++block)
    v = hn::IfThenElse(mask_of(std::uint64_t{15} << (4 * block), 0), hn::LoadDup128(df, row[4 * block] + c), v);
  return v;
}

// Transposes the rows of 16 ranks into a RoPE tile, in 4x4 blocks within vectors. Empty slots use row 0.
HWY_INLINE void make_rope_tile(const float* rank_row, int dims, const std::int32_t* rank, float* HWY_RESTRICT out) {
  const hn::Repartition<double, F> d64;
  const auto pairs_low = [&](Vec a, Vec b) HWY_ATTR {
    return hn::BitCast(df, hn::InterleaveLower(d64, hn::BitCast(d64, a), hn::BitCast(d64, b)));
  };
  const auto pairs_high = [&](Vec a, Vec b) HWY_ATTR {
    return hn::BitCast(df, hn::InterleaveUpper(d64, hn::BitCast(d64, a), hn::BitCast(d64, b)));
  };
  const float* row[kTile];
  for (int s = 0; s < kTile; ++s) row[s] = rank_row + static_cast<std::ptrdiff_t>(std::max(rank[s], 0)) * dims;
  for (int n = 0; n < kTile; n += kLanes) {
    int c = 0;
    for (; c + 4 <= dims; c += 4) {
      const Vec a0 = every_fourth_row(row + n, c), a1 = every_fourth_row(row + n + 1, c);
      const Vec a2 = every_fourth_row(row + n + 2, c), a3 = every_fourth_row(row + n + 3, c);
      const Vec low = hn::InterleaveLower(df, a0, a1), low2 = hn::InterleaveLower(df, a2, a3);
      const Vec high = hn::InterleaveUpper(df, a0, a1), high2 = hn::InterleaveUpper(df, a2, a3);
      hn::StoreU(pairs_low(low, low2), df, out + c * kTile + n);
      hn::StoreU(pairs_high(low, low2), df, out + (c + 1) * kTile + n);
      hn::StoreU(pairs_low(high, high2), df, out + (c + 2) * kTile + n);
      hn::StoreU(pairs_high(high, high2), df, out + (c + 3) * kTile + n);
    }
    for (; c < dims; ++c)
      for (int s = n; s < n + kLanes; ++s) out[c * kTile + s] = row[s][c];
  }
}

// Keys that need no rotation.
template <class T>
struct PlainKeys {
  const T* tile[4];

  template <int R>
  HWY_INLINE void dot(const float* q, const AttentionShape& shape, const Prefetch& prefetch, float* score) const {
    dot_rows<R>(q, shape.head_dim, tile, prefetch, score);
  }
};

// Keys rotated in registers. `half`: elements from a key to its rotated half; 0: none is stored.
template <class T>
struct RotatingKeys {
  const T* tile[4];
  const float* rope_tile[4];
  std::ptrdiff_t half;

  // Same contract as dot_rows.
  template <int R>
  HWY_INLINE void dot(const float* HWY_RESTRICT q, const AttentionShape& shape, const Prefetch& prefetch,
                      float* HWY_RESTRICT score) const {
    const int pairs = shape.rope_dims / 2;
    const int step = shape.rope == RopeKind::kHalves ? 1 : 2, partner = shape.rope == RopeKind::kHalves ? pairs : 1;
    for (int first = 0; first < kVectors; first += kWide) {
      const T* at[kWide];
      const float* rope_tiles[kWide];
      Vec sum[R][kWide];
      for (int v = 0; v < kWide; ++v) {
        const int lane = (first + v) * kLanes;
        at[v] = tile[lane / kTile] + lane % kTile;
        rope_tiles[v] = rope_tile[lane / kTile] + lane % kTile;
        for (int r = 0; r < R; ++r) sum[r][v] = hn::Zero(df);
      }
      for (int quarter = 0, p = 0; quarter < 4; ++quarter) {
        const int end = pairs * (quarter + 1) / 4;
        Prefetch::Piece part = prefetch.pass(first / kWide, kVectors / kWide).quarter(quarter, end - p);
        for (; p < end; ++p) {
          part.next();
          const int a = p * step, b = a + partner;
          Vec x[kWide], y[kWide];
          for (int v = 0; v < kWide; ++v) {
            const Vec cos = load(rope_tiles[v] + p * kTile), sin = load(rope_tiles[v] + (pairs + p) * kTile);
            const Vec k = load(at[v] + a * kTile), l = load(at[v] + b * kTile);
            if (half == 0) {
              x[v] = hn::NegMulAdd(l, sin, hn::Mul(k, cos));
              y[v] = hn::MulAdd(k, sin, hn::Mul(l, cos));
            } else {
              x[v] = hn::MulAdd(load(at[v] + half + a * kTile), sin, hn::Mul(k, cos));
              y[v] = hn::MulAdd(load(at[v] + half + b * kTile), sin, hn::Mul(l, cos));
            }
          }
          for (int r = 0; r < R; ++r) {
            const Vec qa = hn::Set(df, q[a * 4 + r]), qb = hn::Set(df, q[b * 4 + r]);
            for (int v = 0; v < kWide; ++v) sum[r][v] = hn::MulAdd(qb, y[v], hn::MulAdd(qa, x[v], sum[r][v]));
          }
        }
      }
      for (int d = 2 * pairs; d < shape.head_dim; ++d)
        for (int v = 0; v < kWide; ++v) {
          const Vec k = load(at[v] + d * kTile);
          for (int r = 0; r < R; ++r) sum[r][v] = hn::MulAdd(hn::Set(df, q[d * 4 + r]), k, sum[r][v]);
        }
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < kWide; ++v) hn::StoreU(sum[r][v], df, score + r * kBlock + (first + v) * kLanes);
    }
  }
};

// Dot products of all rows of a unit with the keys of a block; with two queries, sinks use the sink queries.
// dot.operator()<R>(whether of sink queries, first row, prefetch, score): of R rows.
template <class Dot>
HWY_INLINE void score_rows(const Unit& u, const Block& b, const Prefetch& prefetch, const Dot& dot) {
  float *const score = u.memory.score, *const sink_score = u.memory.sink_score;
  by_four_rows(u.rows(), [&]<int R>(int r) HWY_ATTR {
    dot.template operator()<R>(false, r, r == 0 ? prefetch : Prefetch(), score + r * kBlock);
  });
  if (!u.two_queries() || (b.sinks & b.used) == 0) return;
  by_four_rows(u.rows(), [&]<int R>(int r)
                             HWY_ATTR { dot.template operator()<R>(true, r, Prefetch(), sink_score + r * kBlock); });
  for (int n = 0; n < u.rows() * kBlock; n += kLanes) {
    const Mask of_sinks = mask_of(b.sinks, n % kBlock / kLanes);
    hn::StoreU(hn::IfThenElse(of_sinks, hn::LoadU(df, sink_score + n), hn::LoadU(df, score + n)), df, score + n);
  }
}

template <class Keys>
HWY_INLINE void score_tiles(const Unit& u, const Block& b, const Keys& keys, const Prefetch& prefetch) {
  const int head_dim = u.shape().head_dim;
  score_rows(u, b, prefetch, [&]<int R>(bool of_sinks, int r, const Prefetch& part, float* score) HWY_ATTR {
    keys.template dot<R>((of_sinks ? u.memory.sink_query : u.memory.query) + r * head_dim, u.shape(), part, score);
  });
}

// Rotates a tile of keys into f32; `out` may be the tile itself.
template <class T>
HWY_INLINE void rotate_tile(const AttentionShape& shape, const T* tile, std::ptrdiff_t half, const float* rope_tiles,
                            float* out) {
  const int pairs = shape.rope_dims / 2;
  const int step = shape.rope == RopeKind::kHalves ? 1 : 2, partner = shape.rope == RopeKind::kHalves ? pairs : 1;
  for (int p = 0; p < pairs; ++p) {
    const int a = p * step * kTile, b = a + partner * kTile;
    for (int n = 0; n < kTile; n += kLanes) {
      const Vec cos = load(rope_tiles + p * kTile + n), sin = load(rope_tiles + (pairs + p) * kTile + n);
      const Vec k = load(tile + a + n), l = load(tile + b + n);
      const Vec less = half == 0 ? hn::Neg(l) : load(tile + half + a + n);
      const Vec more = half == 0 ? k : load(tile + half + b + n);
      hn::StoreU(hn::MulAdd(less, sin, hn::Mul(k, cos)), df, out + a + n);
      hn::StoreU(hn::MulAdd(more, sin, hn::Mul(l, cos)), df, out + b + n);
    }
  }
  for (int n = 2 * pairs * kTile; n < shape.head_dim * kTile; n += kLanes) hn::StoreU(load(tile + n), df, out + n);
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
