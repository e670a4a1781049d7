// One work unit of attention: some rows of a head over some of its slots, in blocks of 64, with online softmax.
//
//   block:  visible bits -> scores -> running max, 2^(score - max) -> weighted sum of values
//
// With few rows the kernels read keys and values in the stored format. With many rows a block is converted to f32
// first. Functions that are called at most once per block are not inlined: each is compiled once for all of its
// callers.

#if defined(PALIMPSEST_ATTENTION_ATTEND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_ATTEND_INL_H_
#undef PALIMPSEST_ATTENTION_ATTEND_INL_H_
#else
#define PALIMPSEST_ATTENTION_ATTEND_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "palimpsest/attention/kernels.h"
#include "palimpsest/attention/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

HWY_INLINE void interleave(const float* query, int head_dim, int row, float* queries) {
  float* const to = queries + row / 4 * 4 * head_dim + row % 4;
  for (int d = 0; d < head_dim; ++d) to[d * 4] = query[d];
}

// The rotated query in u.memory.row.
HWY_INLINE void weigh_query(const Unit& u) {
  const float* const factor = u.shape().query_factor;
  for (int d = 0; factor != nullptr && d < u.shape().head_dim; ++d) u.memory.row[d] *= factor[d];
}

HWY_NOINLINE inline void prepare_queries(const Unit& u) {
  const AttentionShape& shape = u.shape();
  const SequenceTokens& tokens = *u.work.tokens;
  const int group = u.work.group();
  const float factor = shape.scale * kLog2E;
  const auto encode = u.widens() || u.rotates_on_read() ? nullptr : u.work.keys->encode_query;
  for (int q = 0; q < u.queries; ++q)
    for (int g = 0; g < group; ++g)
      fetch_row(u.work.step->q.at(tokens.first + u.first_query + q, u.work.kv_head * group + g), shape.head_dim);
  for (int q = 0; q < u.queries; ++q) {
    const int query = u.first_query + q;
    const float* const here = query_row(shape, tokens, u.work.slots(), query);
    const float* const at_sinks =
        u.two_queries()
            ? tokens.rank_row +
                  static_cast<std::ptrdiff_t>(sink_rank(tokens, u.work.slots(), u.work.window, query)) * shape.rope_dims
            : nullptr;
    for (int g = 0; g < group; ++g) {
      const float* const from = u.work.step->q.at(tokens.first + query, u.work.kv_head * group + g);
      const int row = q * group + g;
      rotate(from, shape.head_dim, shape, here, factor, u.memory.row);
      weigh_query(u);
      interleave(u.memory.row, shape.head_dim, row, u.memory.query);
      if (encode != nullptr) encode(u, row, false);
      if (at_sinks == nullptr) continue;
      rotate(from, shape.head_dim, shape, at_sinks, factor, u.memory.row);
      weigh_query(u);
      interleave(u.memory.row, shape.head_dim, row, u.memory.sink_query);
      if (encode != nullptr) encode(u, row, true);
    }
  }
}

HWY_INLINE std::uint64_t visible_bits(const std::int32_t* relative, int tiles, const HeadStep& work, int query) {
  const SequenceTokens& tokens = *work.tokens;
  const auto before = [&](std::int32_t window) HWY_ATTR {
    const std::int64_t relative = window == INT32_MAX ? INT32_MIN : std::int64_t{tokens.relative[query]} - window;
    return hn::Set(di, static_cast<std::int32_t>(std::max<std::int64_t>(relative, INT32_MIN)));
  };
  const auto now = hn::Set(di, tokens.relative[query]), sink_end = hn::Set(di, tokens.sink_end);
  const auto low = before(work.window), far = before(work.step->local_of(tokens, query));
  std::uint64_t bits = 0;
  for (int n = 0; n < tiles * kTile; n += kLanes) {
    const auto w = hn::LoadU(di, relative + n);
    const auto seen = hn::And(hn::And(hn::Le(w, now), hn::Gt(w, far)), hn::Or(hn::Gt(w, low), hn::Lt(w, sink_end)));
    bits |= static_cast<std::uint64_t>(hn::BitsFromMask(di, seen)) << n;
  }
  return bits;
}

HWY_INLINE std::uint64_t before_bits(const std::int32_t* relative, int tiles, std::int32_t end) {
  std::uint64_t bits = 0;
  for (int n = 0; n < tiles * kTile; n += kLanes)
    bits |= static_cast<std::uint64_t>(hn::BitsFromMask(di, hn::Lt(hn::LoadU(di, relative + n), hn::Set(di, end))))
            << n;
  return bits;
}

// Block `index`; visible[q] gets the slots that query q of the unit sees.
HWY_INLINE Block find_block(const Unit& u, int index, const Tiles& tiles, std::uint64_t* visible) {
  const SlotsView& slots = u.work.slots();
  const int first = index * kBlock;
  Block b{};
  b.relative = slots.relative + first;
  b.rank = slots.rank == nullptr ? nullptr : slots.rank + first;
  b.bias = slots.bias == nullptr ? nullptr : slots.bias + first;
  b.tiles = std::min(4, (slots.slots - first) / kTile);
  if (u.work.all_visible) {
    visible[0] = b.used = ~std::uint64_t{0} >> (64 - b.tiles * kTile);
  } else {
    for (int q = 0; q < u.queries; ++q) {
      visible[q] = visible_bits(b.relative, b.tiles, u.work, u.first_query + q);
      b.used |= visible[q];
    }
  }
  if (b.used == 0) return b;
  if (u.work.tokens->two_query) b.sinks = before_bits(b.relative, b.tiles, u.work.tokens->sink_end);

  const int any_used = std::countr_zero(b.used) / kTile, rope_tile_floats = u.shape().rope_dims * kTile;
  for (int t = 0; t < 4; ++t) {
    const bool used = b.used_in(t) != 0;
    const int from = used ? t : any_used;
    b.key[t] = tiles.key[from];
    b.value[t] = tiles.value[from];
    if (!u.rotates_on_read()) continue;
    b.rope_tile[t] = u.work.rank_tiles == nullptr
                         ? u.memory.rope_tiles + from * rope_tile_floats
                         : u.work.rank_tiles + static_cast<std::ptrdiff_t>(first / kTile + from) * rope_tile_floats;
    if (used && u.work.rank_tiles == nullptr)
      make_rope_tile(u.work.tokens->rank_row, u.shape().rope_dims, b.rank + t * kTile,
                     u.memory.rope_tiles + t * rope_tile_floats);
  }
  return b;
}

HWY_INLINE void widen_keys(const Unit& u, const Block& b, const float** tiles) {
  const int head_dim = u.shape().head_dim;
  const KeyKernels& keys = *u.work.keys;
  for (int t = 0; t < 4; ++t) {
    float* const out = u.memory.key_tiles + t * head_dim * kTile;
    tiles[t] = out;
    if (b.used_in(t) == 0) continue;
    if (u.rotates_on_read())
      keys.rotate(u.shape(), b.key[t], u.half(), b.rope_tile[t], out);
    else
      keys.widen(b.key[t], head_dim, out);
  }
}

HWY_NOINLINE inline void cap_scores(const Unit& u) {
  for (int n = 0; n < u.rows() * kBlock; n += kLanes)
    hn::StoreU(soft_capped(hn::LoadU(df, u.memory.score + n), u.shape().soft_cap), df, u.memory.score + n);
}

// Subtracts ALiBi's slope * distance from the scores. The scores of empty slots are undefined.
HWY_NOINLINE inline void add_alibi(const Unit& u, const Block& b) {
  const SequenceTokens& tokens = *u.work.tokens;
  const int group = u.work.group();
  const float* const slope = u.shape().alibi + u.work.kv_head * group;
  for (int q = 0; q < u.queries; ++q) {
    const int query = u.first_query + q;
    const SlotsView& slots = u.work.slots();
    const bool by_rank = tokens.rank_distance;
    const std::int32_t here = by_rank ? query_rank(tokens, slots, query) : tokens.relative[query];
    const std::int32_t at_sinks = by_rank ? sink_rank(tokens, slots, u.work.window, query) : here;
    for (int v = 0; v < b.tiles * kTile / kLanes; ++v) {
      const auto position = hn::LoadU(di, (by_rank ? b.rank : b.relative) + v * kLanes);
      const Mask of_sinks = mask_of(b.sinks, v);
      const auto from = hn::IfThenElse(hn::RebindMask(di, of_sinks), hn::Set(di, at_sinks), hn::Set(di, here));
      const Vec distance = hn::ConvertTo(df, hn::Sub(from, position));
      for (int g = 0; g < group; ++g) {
        float* const score = u.memory.score + (q * group + g) * kBlock + v * kLanes;
        hn::StoreU(hn::NegMulAdd(hn::Set(df, slope[g] * kLog2E), distance, hn::LoadU(df, score)), df, score);
      }
    }
  }
}

// Adds the biases of slots to the scores. The scores of empty slots are undefined.
HWY_NOINLINE inline void add_bias(const Unit& u, const Block& b) {
  for (int v = 0; v < b.tiles * kTile / kLanes; ++v) {
    const Vec bias = hn::Mul(hn::Set(df, kLog2E), hn::LoadU(df, b.bias + v * kLanes));
    for (int r = 0; r < u.rows(); ++r) {
      float* const score = u.memory.score + r * kBlock + v * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(df, score), bias), df, score);
    }
  }
}

HWY_NOINLINE inline void dot_widened(const Unit& u, const Block& b, const Prefetch& prefetch) {
  PlainKeys<float> wide;
  widen_keys(u, b, wide.tile);
  score_tiles(u, b, wide, prefetch);
}

// Dot products of all rows of a unit with the keys of a block, in units of log2.
HWY_INLINE void dot_block(const Unit& u, const Block& b, bool widen, const Prefetch& prefetch) {
  const KeyKernels& keys = *u.work.keys;
  if (widen || (u.rotates_on_read() && (keys.dot_rotating == nullptr || u.work.group() > 4))) {
    dot_widened(u, b, prefetch);
  } else if (u.rotates_on_read()) {
    keys.dot_rotating(u, b, prefetch);
  } else {
    keys.dot(u, b, prefetch);
  }
}

// Dot products become scores: soft-capped, with ALiBi and the biases of slots.
HWY_INLINE void bias_block(const Unit& u, const Block& b) {
  if (u.shape().soft_cap > 0) cap_scores(u);
  if (u.shape().alibi != nullptr) add_alibi(u, b);
  if (b.bias != nullptr) add_bias(u, b);
}

HWY_INLINE void score_block(const Unit& u, const Block& b, bool widen, const Prefetch& prefetch) {
  dot_block(u, b, widen, prefetch);
  bias_block(u, b);
}

// A step of online softmax for all rows of a unit: scores become 2^(score - running max), 0 for slots that a row does
// not see; updates the running max and sum and sets the correction for earlier blocks. visible[q]: of query q.
HWY_INLINE void online_softmax(const Unit& u, const std::uint64_t* visible) {
  const UnitMemory& m = u.memory;
  const int rows = u.rows(), group = u.work.group();
  const auto seen = [&](int r, int v) HWY_ATTR {
    const Vec score = hn::LoadU(df, m.score + r * kBlock + v * kLanes);
    const std::uint64_t bits = visible[r / group];
    return bits == ~std::uint64_t{0} ? score : hn::IfThenElse(mask_of(bits, v), score, hn::Set(df, kNothing));
  };
  // In three loops: no row's powers wait for another row's maximum.
  for (int r = 0; r < rows; ++r) {
    Vec top = seen(r, 0);
    for (int v = 1; v < kVectors; ++v) top = hn::Max(top, seen(r, v));
    const float before = m.max[r], now = std::max(before, hn::ReduceMax(df, top));
    m.correction[r] = now == kNothing ? 0 : before - now;
    m.max[r] = now;
  }
  for (int r = 0; r < rows; r += kLanes) {
    const int count = std::min(kLanes, rows - r);
    hn::StoreN(pow2(load_first(m.correction + r, count)), df, m.correction + r, static_cast<std::size_t>(count));
  }
  for (int r = 0; r < rows; ++r) {
    float* const score = m.score + r * kBlock;
    if (m.max[r] == kNothing) {
      for (int v = 0; v < kVectors; ++v) hn::StoreU(hn::Zero(df), df, score + v * kLanes);
      continue;
    }
    const Vec max = hn::Set(df, m.max[r]);
    Vec total = hn::Zero(df);
    for (int v = 0; v < kVectors; ++v) {
      const Vec power = pow2(hn::Sub(seen(r, v), max));
      hn::StoreU(power, df, score + v * kLanes);
      total = hn::Add(total, power);
    }
    float* const sum = m.sum + r * kTile;
    hn::StoreU(hn::MulAdd(hn::LoadU(df, sum), hn::Set(df, m.correction[r]), total), df, sum);
  }
}

HWY_NOINLINE inline void add_widened(const Unit& u, const Block& b, const Prefetch& prefetch) {
  ValueTiles<float> wide;
  wide.stride = u.value_stride();
  for (int t = 0; t < 4; ++t) {
    float* const out = u.memory.value_rows + t * kTile * wide.stride;
    wide.tile[t] = out;
    if (b.used_in(t) != 0) u.work.values->widen(b.value[t], u.shape().value_dim, b.used_in(t), out, wide.stride);
  }
  add_rows(u, wide, b.used, prefetch);
}

// Adds a block's weighted values to all rows of a unit.
HWY_INLINE void add_block(const Unit& u, const Block& b, bool widen, const Prefetch& prefetch) {
  if (widen)
    add_widened(u, b, prefetch);
  else
    u.work.values->add(u, b, prefetch);
}

// Writes a finished unit's rows: to `out`, or to the split's partial result for reduce_head.
HWY_NOINLINE inline void finish_rows(const Unit& u, int split) {
  const HeadStep& w = u.work;
  const int value_dim = u.shape().value_dim, group = w.group();
  for (int r = 0; r < u.rows(); ++r) {
    float* const value = u.memory.value + r * u.value_stride();
    if (w.values->finish != nullptr) w.values->finish(value, value_dim);
    const float sum = hn::ReduceSum(df, hn::LoadU(df, u.memory.sum + r * kTile)), max = u.memory.max[r];
    const int row = u.first_query * group + r;
    if (w.splits > 1) {
      float* const partial = w.partial + (static_cast<std::size_t>(split) * w.rows() + row) * row_floats(u.shape());
      hwy::CopyBytes(value, partial, static_cast<std::size_t>(value_dim) * sizeof(float));
      partial[value_dim] = max;
      partial[value_dim + 1] = sum;
      continue;
    }
    const float denominator = softmax_denominator(w, row, max, sum), inverse = denominator > 0 ? 1 / denominator : 0;
    float* const out = w.step->out.at(w.tokens->first + row / group, w.kv_head * group + row % group);
    for (int d = 0; d < value_dim; d += kLanes)
      hn::StoreN(hn::Mul(hn::LoadU(df, value + d), hn::Set(df, inverse)), df, out + d,
                 static_cast<std::size_t>(std::min(kLanes, value_dim - d)));
    if (w.log_sum != nullptr) w.log_sum[row] = denominator > 0 ? max + std::log2(denominator) : -kNothing;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
