// Attention over clusters (cache/merged.h): a representative in a slot and the tokens merged into it, which are never
// expanded. One dot product per slot, one exponential per token, one value per slot.
//
//   dot products of all slots -> max score -> each cluster's weight: the sum of 2^(score - max) of its tokens, whose
//   dot products are the slot's times their factors -> weighted sum of values
//
// Rows of entries (MergedView) belong to one tile of slots, so entries read a slot's dot product and add to its weight
// lane by lane, without gather or scatter.

#if defined(PALIMPSEST_ATTENTION_CLUSTERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_CLUSTERS_INL_H_
#undef PALIMPSEST_ATTENTION_CLUSTERS_INL_H_
#else
#define PALIMPSEST_ATTENTION_CLUSTERS_INL_H_
#endif

#include "palimpsest/attention/attend-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

// Some rows of a head with all slots and entries.
//
//   score  [blocks][rows][kBlock]          dot products, then weights of clusters
//   bias   [blocks][rows][kBlock]          ALiBi and the biases of slots, if there are any
//   own    [blocks][rows][kBlock]          weights of representatives, if weights are requested
//   entry  [rows of entries][rows][kTile]  dot products of entries with distances, then weights if requested
struct Clusters {
  Unit unit;
  float *score, *bias, *own, *entry;

  Clusters(const HeadStep& w, const UnitMemory& memory, int first_query, int queries, float* floats)
      : unit{w, memory, first_query, queries}, score(floats) {
    const std::size_t slots = static_cast<std::size_t>(w.blocks()) * unit.rows() * kBlock;
    bias = w.has_bias() ? score + slots : nullptr;
    own = score + (bias == nullptr ? 1 : 2) * slots;
    entry = own + slots;
  }
  const HeadStep& work() const { return unit.work; }
  const MergedView& merged() const { return *unit.work.merged; }
  bool rotated() const { return merged().distance != nullptr && work().tokens->distance_row != nullptr; }
  int rows() const { return unit.rows(); }
  float* block(float* of, int n) const { return of + static_cast<std::ptrdiff_t>(n) * rows() * kBlock; }
  // Row r's numbers for tile t.
  float* tile(float* of, int t, int r) const { return block(of, t / 4) + r * kBlock + t % 4 * kTile; }
  float* entries(int row, int r) const { return entry + (static_cast<std::ptrdiff_t>(row) * rows() + r) * kTile; }
  int tiles() const { return work().slots().slots / kTile; }
};

// Dot products; kNothing for slots that a row does not see.
HWY_INLINE void dot_clusters(const Clusters& c) {
  Unit u = c.unit;
  std::uint64_t visible[kRows];
  Tiles tiles(u.work, 0);
  for (int n = 0; n < u.work.blocks(); ++n) {
    const Tiles next(u.work, n + 1);
    const Block b = find_block(u, n, tiles, visible);
    tiles = next;
    float* const score = c.block(c.score, n);
    if (b.used == 0) {
      std::fill_n(score, c.rows() * kBlock, kNothing);
      continue;
    }
    if (c.bias != nullptr) {
      u.memory.score = c.block(c.bias, n);
      std::fill_n(u.memory.score, c.rows() * kBlock, 0.0f);
      if (u.shape().alibi != nullptr) add_alibi(u, b);
      if (b.bias != nullptr) add_bias(u, b);
    }
    u.memory.score = score;
    dot_block(u, b, false, prefetch_of(next.key, key_tile_bytes(*u.work.cache)));
    for (int r = 0; r < c.rows(); ++r)
      for (int v = 0; visible[r / u.work.group()] != ~std::uint64_t{0} && v < kVectors; ++v) {
        float* const at = score + r * kBlock + v * kLanes;
        const Mask sees = mask_of(visible[r / u.work.group()], v);
        hn::StoreU(hn::IfThenElse(sees, hn::LoadU(df, at), hn::Set(df, kNothing)), df, at);
      }
  }
}

// Dot products of entries that have distances: their slots' keys, rotated in registers by the distance. Four rows of
// entries at a time.
HWY_INLINE void dot_entries(const Clusters& c) {
  const HeadStep& w = c.work();
  const MergedView& m = c.merged();
  const AttentionShape& shape = c.unit.shape();
  const UnitMemory& memory = c.unit.memory;
  const int key_floats = shape.head_dim * kTile, rope_tile_floats = shape.rope_dims * kTile,
            pairs = shape.rope_dims / 2;
  RotatingKeys<float> keys;
  keys.half = 0;
  int first = 0;  // of up to four rows buffered in memory
  const auto load_row = [&](int i, int t, int row) HWY_ATTR {
    float* const key = memory.key_tiles + i * key_floats;
    float* const rope_tile = memory.rope_tiles + i * rope_tile_floats;
    const int lane = m.lane[row];
    w.keys->widen(Tiles(w, t / 4).key[t % 4], shape.head_dim, key);
    for (int d = 0; lane >= 0 && d < shape.head_dim; ++d) std::fill_n(key + d * kTile, kTile, key[d * kTile + lane]);
    std::int32_t entries[kTile];
    for (int n = 0; n < kTile; ++n) entries[n] = std::abs(m.distance[row * kTile + n]);
    make_rope_tile(w.tokens->distance_row, shape.rope_dims, entries, rope_tile);
    for (int n = 0; n < kTile; n += kLanes) {
      const auto back = hn::RebindMask(df, hn::Lt(hn::LoadU(di, m.distance + row * kTile + n), hn::Zero(di)));
      for (int p = pairs; p < 2 * pairs; ++p) {
        const Vec sin = hn::LoadU(df, rope_tile + p * kTile + n);
        hn::StoreU(hn::IfThenElse(back, hn::Neg(sin), sin), df, rope_tile + p * kTile + n);
      }
    }
    keys.tile[i] = key;
    keys.rope_tile[i] = rope_tile;
  };
  const auto dot_rows_of = [&](int count) HWY_ATTR {
    for (int i = count; i < 4; ++i) keys.tile[i] = keys.tile[0], keys.rope_tile[i] = keys.rope_tile[0];
    by_four_rows(c.rows(), [&]<int R>(int r) HWY_ATTR {
      keys.template dot<R>(memory.query + r * shape.head_dim, shape, Prefetch(), memory.score + r * kBlock);
    });
    for (int i = 0; i < count; ++i)
      for (int r = 0; r < c.rows(); ++r)
        std::copy_n(memory.score + r * kBlock + i * kTile, kTile, c.entries(first + i, r));
    first += count;
  };
  for (int t = 0; t < c.tiles(); ++t)
    for (int row = m.first[t]; row < m.first[t + 1]; ++row) {
      load_row(row - first, t, row);
      if (row - first == 3 || row + 1 == m.rows) dot_rows_of(row - first + 1);
    }
}

// The score of a dot product; kNothing stays kNothing. Monotonic in the product.
HWY_INLINE Vec score_of(Vec product, float soft_cap, Vec bias) {
  const Vec capped = soft_cap > 0 ? soft_capped(product, soft_cap) : product;
  return hn::IfThenElse(hn::Eq(product, hn::Set(df, kNothing)), product, hn::Add(capped, bias));
}

// The scores of one row with one tile.
struct RowTilePair {
  const Clusters& c;
  int t, r;
  float cap, slope;
  const float *product, *bias;

  RowTilePair(const Clusters& clusters, int tile, int row)
      : c(clusters), t(tile), r(row), cap(c.unit.shape().soft_cap), slope(0), product(c.tile(c.score, t, r)) {
    bias = c.bias == nullptr ? nullptr : c.tile(c.bias, t, r);
    const int group = c.work().group();
    if (c.unit.shape().alibi != nullptr && c.merged().distance != nullptr)
      slope = c.unit.shape().alibi[c.work().kv_head * group + r % group] * kLog2E;
  }
  bool plain() const { return cap == 0 && bias == nullptr; }
  // Scores of slots n .. n + kLanes - 1, with their dot products times `factor`.
  HWY_INLINE Vec slots(int n, Vec factor) const {
    const Vec x = hn::Mul(hn::LoadU(df, product + n), factor);
    return plain() ? x : score_of(x, cap, bias == nullptr ? hn::Zero(df) : hn::LoadU(df, bias + n));
  }
  // Scores of entries n .. n + kLanes - 1 of a row of this tile; undefined for entries without a token.
  HWY_INLINE Vec entries(int row, int n) const {
    const int lane = c.merged().lane[row];
    const auto of = [&](const float* slots)
                        HWY_ATTR { return lane < 0 ? hn::LoadU(df, slots + n) : hn::Set(df, slots[lane]); };
    Vec x = of(product);
    if (c.rotated()) x = hn::IfThenElse(hn::Eq(x, hn::Set(df, kNothing)), x, hn::LoadU(df, c.entries(row, r) + n));
    x = hn::Mul(x, hn::LoadU(df, c.merged().factor + row * kTile + n));
    if (plain()) return x;
    Vec b = bias == nullptr ? hn::Zero(df) : of(bias);
    if (slope != 0)
      b = hn::MulAdd(hn::Set(df, slope), hn::ConvertTo(df, hn::LoadU(di, c.merged().distance + row * kTile + n)), b);
    return score_of(x, cap, b);
  }
  HWY_INLINE Mask used(int row, int n) const {
    return hn::Gt(hn::LoadU(df, c.merged().factor + row * kTile + n), hn::Zero(df));
  }
};

// The max score of each row. Without distances, a cluster's max score is that of its largest or smallest factor.
HWY_INLINE void find_max(const Clusters& c) {
  const MergedView& m = c.merged();
  const bool alike = m.distance == nullptr;
  for (int r = 0; r < c.rows(); ++r) {
    Vec top = hn::Set(df, kNothing);
    for (int t = 0; t < c.tiles(); ++t) {
      const RowTilePair pair(c, t, r);
      for (int n = 0; n < kTile; n += kLanes) {
        if (alike) {
          const int slot = t * kTile + n;
          top = hn::Max(
              top, hn::Max(pair.slots(n, hn::LoadU(df, m.max + slot)), pair.slots(n, hn::LoadU(df, m.min + slot))));
          continue;
        }
        top = hn::Max(top, pair.slots(n, hn::Set(df, 1.0f)));
        for (int row = m.first[t]; row < m.first[t + 1]; ++row)
          top = hn::Max(top, hn::IfThenElse(pair.used(row, n), pair.entries(row, n), hn::Set(df, kNothing)));
      }
    }
    c.unit.memory.max[r] = hn::ReduceMax(df, top);
  }
}

// Dot products become weights 2^(score - max) of clusters: the sum over the representative and the merged tokens.
HWY_INLINE void softmax_clusters(const Clusters& c, bool keep) {
  const MergedView& m = c.merged();
  const UnitMemory& memory = c.unit.memory;
  for (int r = 0; r < c.rows(); ++r) {
    const Vec max_score = hn::Set(df, memory.max[r] == kNothing ? 0.0f : memory.max[r]);
    Vec sum = hn::Zero(df);
    for (int t = 0; t < c.tiles(); ++t) {
      const RowTilePair pair(c, t, r);
      HWY_ALIGN float lanes[kTile] = {};  // weights of rows that belong to one slot
      Vec weight[kTile / kLanes];
      for (int v = 0; v < kTile / kLanes; ++v) {
        weight[v] = pow2(hn::Sub(pair.slots(v * kLanes, hn::Set(df, 1.0f)), max_score));
        if (keep) hn::StoreU(weight[v], df, c.tile(c.own, t, r) + v * kLanes);
      }
      for (int row = m.first[t]; row < m.first[t + 1]; ++row) {
        Vec of_slot = hn::Zero(df);
        for (int v = 0; v < kTile / kLanes; ++v) {
          const int n = v * kLanes;
          const Vec score = hn::Min(hn::Zero(df), hn::Sub(pair.entries(row, n), max_score));
          const Vec p = hn::IfThenElseZero(pair.used(row, n), pow2(score));
          if (keep) hn::StoreU(p, df, c.entries(row, r) + n);
          if (m.lane[row] < 0)
            weight[v] = hn::Add(weight[v], p);
          else
            of_slot = hn::Add(of_slot, p);
        }
        if (m.lane[row] >= 0) lanes[m.lane[row]] += hn::ReduceSum(df, of_slot);
      }
      for (int v = 0; v < kTile / kLanes; ++v) {
        weight[v] = hn::Add(weight[v], hn::Load(df, lanes + v * kLanes));
        hn::StoreU(weight[v], df, c.tile(c.score, t, r) + v * kLanes);
        sum = hn::Add(sum, weight[v]);
      }
    }
    std::fill_n(memory.sum + r * kTile, kTile, 0.0f);
    hn::StoreU(sum, df, memory.sum + r * kTile);
  }
}

// Adds the weights of slots and entries: of each row of weights, then of the earlier queries if `sums` is requested.
HWY_INLINE void sum_cluster_weights(const Clusters& c, float* received) {
  const HeadStep& w = c.work();
  const auto part_of = [&](int query) {  // -1: none
    int end = w.tokens->count - w.late_queries();
    if (query < end) return w.sums == nullptr ? -1 : w.weight_rows();
    int row = 0;
    while (query >= (end += w.row_queries(row))) ++row;
    return row;
  };
  const std::size_t slots = static_cast<std::size_t>(w.blocks()) * kBlock;
  for (int r = 0; r < c.rows(); ++r) {
    const float sum = hn::ReduceSum(df, hn::LoadU(df, c.unit.memory.sum + r * kTile));
    const float denominator = softmax_denominator(w, r, c.unit.memory.max[r], sum);
    const Vec share = hn::Set(df, denominator > 0 ? 1 / (denominator * static_cast<float>(w.group())) : 0.0f);
    const int part = part_of(c.unit.first_query + r / w.group());
    if (part < 0) continue;
    float* const to = received + part * w.cluster_weights();
    const auto add = [&](const float* p, float* at) HWY_ATTR {
      for (int n = 0; n < kTile; n += kLanes)
        hn::StoreU(hn::MulAdd(share, hn::LoadU(df, p + n), hn::LoadU(df, at + n)), df, at + n);
    };
    for (int t = 0; t < c.tiles(); ++t) add(c.tile(c.own, t, r), to + t * kTile);
    for (int row = 0; row < w.merged->rows; ++row) add(c.entries(row, r), to + slots + row * kTile);
  }
}

HWY_INLINE void add_cluster_values(const Clusters& c) {
  Unit u = c.unit;
  std::fill_n(u.memory.value, c.rows() * u.value_stride(), 0.0f);
  std::fill_n(u.memory.correction, c.rows(), 1.0f);
  std::uint64_t visible[kRows];
  Tiles tiles(u.work, 0);
  for (int n = 0; n < u.work.blocks(); ++n) {
    const Tiles next(u.work, n + 1);
    const Block b = find_block(u, n, tiles, visible);
    tiles = next;
    u.memory.score = c.block(c.score, n);
    if (b.used != 0) add_block(u, b, false, prefetch_of(next.value, value_tile_bytes(*u.work.cache)));
  }
}

HWY_NOINLINE void attend_clusters(const HeadStep& w, int query_block, const UnitMemory& memory) {
  float* const floats = w.clusters + static_cast<std::size_t>(query_block) * w.cluster_floats();
  float* received = nullptr;
  if (w.received != nullptr) {
    const std::size_t weights = w.weight_sums() * w.cluster_weights();
    received = floats + w.cluster_floats() - weights;
    std::fill_n(received, weights, 0.0f);
  }
  const int first = query_block * w.block_queries, end = std::min(first + w.block_queries, w.tokens->count);
  const int step = w.cluster_rows() / w.group();
  for (int query = first; query < end; query += step) {
    const Clusters c(w, memory, query, std::min(step, end - query), floats);
    prepare_queries(c.unit);
    dot_clusters(c);
    if (c.rotated()) dot_entries(c);
    find_max(c);
    softmax_clusters(c, received != nullptr);
    if (received != nullptr) sum_cluster_weights(c, received);
    add_cluster_values(c);
    finish_rows(c.unit, 0);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
