// The cache as kernels see it: plain data, no containers, no ggml.
//
// A page holds `page_size` slots of ONE KV head (page_size is a multiple of kTile):
//
//   K   page_size / 16 tiles, each [head_dim][16]    16 keys side by side: one vector register grows 16 scores
//   V   page_size / 16 tiles, each [16][value_dim]   rows
//
// each in a format of its own (cache/formats), whose tiles may hold more, as scales.
//
// With `rotated_half` as many tiles with the halves of K rotated follow K: rotate_half(k) holds -k[partner] in the
// first dimension of a rotary pair and k[partner] in the second, so that k rotated by an angle is k*cos +
// rotate_half*sin.
//
// Slot s of a head lives in page s / page_size of its list, at offset s % page_size. Slots have no order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "palimpsest/cache/formats/formats.h"
#include "palimpsest/core/position_view.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

// A page of a store (cache/pages.h).
using PageId = std::int32_t;
inline constexpr PageId kNoPage = -1;  // no memory: none of its slots holds a token

// The pages of one head.
struct BlockTable {
  const PageId* id = nullptr;  // [slots / page_size]
  std::byte* base = nullptr;   // of the store's page 0
  std::size_t stride = 0;      // bytes from a page to that of the next id

  // Of a page of the head; nullptr: it has none.
  std::byte* operator[](int page) const {
    return id[page] == kNoPage ? nullptr : base + static_cast<std::size_t>(id[page]) * stride;
  }
};

// Tokens that were merged into those of other slots (cache/merged.h), laid out for vectors: rows of 16 places, each row
// of one tile of slots. Token j of slot s has the key factor_j * key(s), rotated by distance_j places if there are
// distances, and the value of s. What hides s hides j.
//
//   lane -1    place i is a token of the tile's slot i
//   lane n     all are tokens of the tile's slot n
struct MergedView {
  const float* factor = nullptr;           // [rows][16] norm of the token's key / norm of the slot's; 0: no token
  const std::int8_t* lane = nullptr;       // [rows]
  const std::int32_t* first = nullptr;     // [slots / 16 + 1] tile t has the rows first[t] .. first[t + 1] - 1
  const std::int32_t* distance = nullptr;  // [rows][16] the token's position - its slot's; nullptr: as if 0
  const float* max = nullptr;              // [slots] the largest factor of a slot's tokens, its own (1) included
  const float* min = nullptr;              // [slots] the smallest
  int farthest = 0;                        // the largest distance, without its sign
  int rows = 0;
  int entries() const { return rows * kTile; }
};

// Where the live tokens of one head are. Heads that share a slot table share the arrays (not the pages).
struct SlotsView {
  const std::int32_t* when =
      nullptr;  // [slots] position minus the table's base; kEmptySlot: no token. Visible: when <= the query's
  const std::int32_t* rank =
      nullptr;                    // [slots] place among the live tokens, oldest 0; nullptr unless keys are rotated late
  int slots = 0;                  // slots in use or free, a multiple of page_size: pages * page_size
  int occupied = 0;               // tokens
  const int* inserted = nullptr;  // [fresh_count] slots of the tokens inserted last, in token order
  int inserted_count = 0;
  const MergedView* merged = nullptr;  // nullptr: none
};

// One KV head of one sequence in one layer.
struct HeadPages {
  BlockTable page;
  const SlotsView* slots = nullptr;
};

struct LayerView {
  const HeadPages* head = nullptr;  // [kv_heads]
  int kv_heads = 0;
  int head_dim = 0;   // of K
  int value_dim = 0;  // of V
  int page_size = 0;
  CacheType key_type = CacheType::kF16, value_type = CacheType::kF16;
  bool rotated_half = false;
};

// Of 16 keys, of 16 values.
inline std::size_t key_tile_bytes(const LayerView& v) {
  return static_cast<std::size_t>(v.head_dim * kv_format(v.key_type).tile_bytes);
}
inline std::size_t value_tile_bytes(const LayerView& v) {
  return static_cast<std::size_t>(v.value_dim * kv_format(v.value_type).tile_bytes);
}

// Byte offsets inside a page: of the rotated halves, of the values, and of the tile of slot `offset`.
inline std::size_t half_offset(const LayerView& v) {
  return static_cast<std::size_t>(v.page_size / kTile) * key_tile_bytes(v);
}
inline std::size_t value_offset(const LayerView& v) {
  return half_offset(v) * (v.rotated_half ? 2 : 1);
}
inline std::size_t page_bytes(const LayerView& v) {
  return value_offset(v) + static_cast<std::size_t>(v.page_size / kTile) * value_tile_bytes(v);
}
inline std::size_t key_tile(const LayerView& v, int offset) {
  return static_cast<std::size_t>(offset / kTile) * key_tile_bytes(v);
}
inline std::size_t value_tile(const LayerView& v, int offset) {
  return value_offset(v) + static_cast<std::size_t>(offset / kTile) * value_tile_bytes(v);
}

// In formats that encode each number by itself: the index of dimension d of the key (or its rotated half) in slot
// `offset` of a page, and of the first dimension of its value.
inline std::size_t key_index(const LayerView& v, int offset, int d) {
  return (static_cast<std::size_t>(offset / kTile) * static_cast<std::size_t>(v.head_dim) +
          static_cast<std::size_t>(d)) *
             kTile +
         static_cast<std::size_t>(offset % kTile);
}
inline std::size_t value_index(const LayerView& v, int offset) {
  return static_cast<std::size_t>(offset) * static_cast<std::size_t>(v.value_dim);
}

// The key and the value in slot `offset` of a page, as rows of f32.
inline void load_key(const LayerView& v, const std::byte* page, int offset, float* key) {
  kv_format(v.key_type).decode_key(page + key_tile(v, offset), offset % kTile, v.head_dim, key);
}
inline void load_value(const LayerView& v, const std::byte* page, int offset, float* value) {
  kv_format(v.value_type).decode_value(page + value_tile(v, offset), offset % kTile, v.value_dim, value);
}
inline void store_key(const LayerView& v, std::byte* page, int offset, const float* key) {
  kv_format(v.key_type).encode_key(key, v.head_dim, page + key_tile(v, offset), offset % kTile);
}
inline void store_value(const LayerView& v, std::byte* page, int offset, const float* value) {
  kv_format(v.value_type).encode_value(value, v.value_dim, page + value_tile(v, offset), offset % kTile);
}

}  // namespace palimpsest
