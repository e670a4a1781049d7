// The state of one work unit, shared by the kernels of all formats: plain data, the same for every instruction set.
// Internal.
#pragma once

#include <hwy/base.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "palimpsest/attention/work.h"

namespace palimpsest {

// Memory that a stage prefetches for the next stage while it computes: four tiles, evenly over all of its own work.
// Decoding is bound by memory, and hardware prefetchers stop at the end of every KV page. A few lines at a time,
// into L2 only: a core has about 16 outstanding L1 misses, and a burst of prefetches would block its own loads.
struct Prefetch {
  const std::byte* tile[4] = {};  // nullptr: nothing
  std::size_t bytes = 0;
  std::size_t also = 0;  // also prefetches the tile at this byte offset; 0: none

  struct Piece {
    const std::byte *at, *end;
    std::size_t step, also;

    HWY_INLINE void next() {
      if (at == end) return;
      const std::byte* const to = static_cast<std::size_t>(end - at) < step ? end : at + step;
      for (; at != to; at += 64) {
        __builtin_prefetch(at, 0, 2);
        if (also != 0) __builtin_prefetch(at + also, 0, 2);
      }
    }
  };

  // What one of a stage's passes over its block prefetches. The first 2^shift passes share the tiles.
  struct Pass {
    const Prefetch& prefetch;
    int index, shift;

    // In a quarter of the pass: a part of a tile, in `steps` calls of next().
    HWY_INLINE Piece quarter(int quarter, int steps) const {
      const int part = index * 4 + quarter, tile = part >> shift;
      if (tile >= 4 || prefetch.tile[tile] == nullptr) return {};
      const std::uint32_t lines = static_cast<std::uint32_t>(prefetch.bytes + 63) / 64, n = part - (tile << shift),
                          begin = lines * n >> shift, end = lines * (n + 1) >> shift,
                          calls = static_cast<std::uint32_t>(std::max(1, steps));
      const std::byte* const at = prefetch.tile[tile];
      return {at + begin * 64, at + end * 64, (end - begin + calls - 1) / calls * 64, prefetch.also};
    }
  };
  HWY_INLINE Pass pass(int index, int count) const {
    return {*this, index, std::bit_width(static_cast<unsigned>(count)) - 1};
  }
  // A whole tile, in `steps` calls.
  HWY_INLINE Piece whole(int index, int steps) const { return pass(0, 1).quarter(index, steps); }
};

// All four tiles side by side, in `steps` calls of next().
struct BlockPrefetch {
  Prefetch::Piece part[4];

  BlockPrefetch(const Prefetch& prefetch, int steps)
      : part{prefetch.whole(0, steps), prefetch.whole(1, steps), prefetch.whole(2, steps), prefetch.whole(3, steps)} {}
  HWY_INLINE void next() {
    for (Prefetch::Piece& p : part) p.next();
  }
};

inline constexpr int kWideGroup = 12;  // a query group of this size or more pays for converting a block to f32 first

// Some queries of a head.
struct Unit {
  const HeadStep& work;
  UnitMemory memory;
  int first_query, queries;
  int row_count = queries * work.group();

  const AttentionShape& shape() const { return work.step->shape; }
  int rows() const { return row_count; }
  // Converts a block to f32 first: for the queries of a chunk, or of a large group.
  bool widens() const { return (!each_alone(*work.tokens) || work.group() >= kWideGroup) && work.merged == nullptr; }
  bool rotates_on_read() const { return work.tokens->rotation == Rotation::kOnRead && shape().rope != RopeKind::kNone; }
  bool two_queries() const {
    return work.tokens->two_query && work.tokens->rotation != Rotation::kNever && shape().rope != RopeKind::kNone;
  }
  std::ptrdiff_t half() const {  // bytes from a key to its rotated half; 0: none is stored
    return work.cache->rotated_half ? static_cast<std::ptrdiff_t>(half_offset(*work.cache)) : 0;
  }
  int value_stride() const { return static_cast<int>(round_up(shape().value_dim, kTile)); }
};

// The denominator of row `row`'s softmax, in units of 2^max: `sum`, of 2^(score - max), plus the sink of its query
// head. 0 if the row sees no slot.
inline float softmax_denominator(const HeadStep& w, int row, float max, float sum) {
  const float* const sinks = w.step->shape.sink_logits;
  if (sinks == nullptr || sum == 0) return sum;
  return sum + std::exp2(sinks[w.kv_head * w.group() + row % w.group()] * std::numbers::log2e_v<float> - max);
}

// Addresses of the keys and values of a block's four tiles; nullptr past the last tile and in freed pages.
struct Tiles {
  const std::byte *key[4], *value[4];

  Tiles(const HeadStep& w, int block) {
    const LayerView& cache = *w.cache;
    for (int t = 0; t < 4; ++t) {
      key[t] = value[t] = nullptr;
      const int slot = block * kBlock + t * kTile, offset = slot % cache.page_size;
      if (slot >= w.slots().slots) continue;
      const std::byte* const page = w.pages->page[slot / cache.page_size];
      if (page == nullptr) continue;
      key[t] = w.rotated_keys == nullptr
                   ? page + key_tile(cache, offset)
                   : reinterpret_cast<const std::byte*>(w.rotated_keys) + slot / kTile * key_tile_bytes(cache);
      value[t] = page + value_tile(cache, offset);
    }
  }
};

inline Prefetch prefetch_of(const std::byte* const* tile, std::size_t bytes) {
  Prefetch prefetch;
  std::copy_n(tile, 4, prefetch.tile);
  prefetch.bytes = bytes;
  return prefetch;
}

// 64 slots of a head. Tiles without a visible slot use another tile's address: their scores are masked.
struct Block {
  const std::byte *key[4], *value[4];
  const float* rope_tile[4];  // cosines and sines of ranks, if keys are rotated on read
  const std::int32_t* relative;
  const std::int32_t* rank;
  const float* bias;        // SlotsView::bias; nullptr: none
  int tiles;                // 4, fewer at the end of the slots
  std::uint64_t used;       // slots that any query sees
  std::uint64_t sinks = 0;  // slots of sinks, with two queries

  std::uint32_t used_in(int tile) const { return static_cast<std::uint32_t>(used >> (tile * kTile)) & 0xffff; }
};

}  // namespace palimpsest
