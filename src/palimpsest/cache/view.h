// The kernels' view of the cache: plain data, no containers, no ggml.
//
// A page holds `page_size` slots of ONE KV head (page_size is a multiple of kTile):
//
//   K   page_size / 16 tiles, each [head_dim][16]    transposed: one vector register accumulates 16 scores
//   V   page_size / 16 tiles, each [16][value_dim]   rows
//
// K and V have a format each (cache/formats); its tiles may also hold scales.
//
// With `rotated_half`, as many tiles of rotate_half(K) follow K: rotate_half(k) is -k[partner] in the first dimension
// of a rotary pair and k[partner] in the second, so k rotated by an angle is k*cos + rotate_half(k)*sin.
//
// Slot s of a head is in page s / page_size of its block table, at offset s % page_size. Slots have no order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "palimpsest/cache/change_log.h"
#include "palimpsest/cache/formats/formats.h"
#include "palimpsest/core/position_view.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

// A page of a pool (cache/pages.h).
using PageId = std::int32_t;
inline constexpr PageId kNoPage = -1;  // unmapped: no memory, no tokens

// The pages of one head.
struct BlockTable {
  const PageId* id = nullptr;  // [slots / page_size]
  std::byte* base = nullptr;   // address of the pool's page 0
  std::size_t stride = 0;      // bytes from a page to the next id's

  // Address of a page of the head; nullptr: unmapped.
  std::byte* operator[](int page) const {
    return id[page] == kNoPage ? nullptr : base + static_cast<std::size_t>(id[page]) * stride;
  }
};

// Tokens that were merged into other slots (cache/merged.h), laid out for vectors: rows of 16 entries, each row for one
// tile of slots. Token j of slot s has the key factor_j * key(s), rotated by distance_j positions if there are
// distances, and the value of s. Token j is masked whenever s is.
//
//   lane -1    entry i is a token of the tile's slot i
//   lane n     all entries are tokens of the tile's slot n
struct MergedView {
  const float* factor = nullptr;           // [rows][16] norm of the token's key / norm of the slot's key; 0: no token
  const std::int8_t* lane = nullptr;       // [rows]
  const std::int32_t* first = nullptr;     // [slots / 16 + 1] tile t has rows first[t] .. first[t + 1] - 1
  const std::int32_t* distance = nullptr;  // [rows][16] the token's position - its slot's; nullptr: all 0
  const float* max = nullptr;              // [slots] max factor of a slot's tokens, its own (1) included
  const float* min = nullptr;              // [slots] min factor
  int max_distance = 0;                    // max |distance|
  int rows = 0;
  int max_rows = 0;  // rows reserved for later layouts: buffers of this size do not grow from step to step
  int entries() const { return rows * kTile; }
  int max_entries() const { return (max_rows > rows ? max_rows : rows) * kTile; }
};

// A slot as the drafts of a step see it, which take no slots before they are accepted: query `query` and those after it
// see the step's token `query` there, or no token.
struct SlotPatch {
  int query;
  int slot;
  bool token;
  bool operator==(const SlotPatch&) const = default;
};

// The occupied slots of one head. Heads that share a slot table share the arrays (not the pages).
struct SlotsView {
  // [slots] relative position: position - the table's base; kEmptySlot: no token. Visible: <= the query's
  const std::int32_t* relative = nullptr;
  // [slots] number among the tokens kept, oldest 0, or position in the text; nullptr unless keys are rotated on read
  const std::int32_t* rank = nullptr;
  bool rank_is_position = false;
  int slots = 0;                  // occupied or not: pages * page_size
  int occupied = 0;               // tokens
  const int* inserted = nullptr;  // [inserted_count] slots of the tokens inserted last, in token order
  int inserted_count = 0;
  int later = 0;                       // tokens at positions after those: inserted in the middle of the text
  const ChangeLog* changes = nullptr;  // of `relative`; nullptr: unknown
  // The patches of a step's drafts that have no slots, by query; within a query, slots without a token come first.
  std::span<const SlotPatch> patches = {};
  const MergedView* merged = nullptr;  // nullptr: none
  // [slots] added to a slot's scaled and capped score before the softmax, in natural-log units; also for the tokens
  // merged into the slot. Finite, or -infinity, which hides the slot; anything in empty slots. nullptr: none.
  const float* bias = nullptr;
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

// Bytes of 16 keys, of 16 values.
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

// Whether every element of a page fits its format (KvFormat::fits).
inline bool page_fits(const LayerView& v, const std::byte* page) {
  const KvFormat &keys = kv_format(v.key_type), &values = kv_format(v.value_type);
  const std::size_t key_bytes = key_tile_bytes(v), value_bytes = value_tile_bytes(v);
  for (std::size_t at = 0; at < value_offset(v); at += key_bytes)
    if (!keys.fits(page + at, v.head_dim)) return false;
  for (std::size_t at = value_offset(v); at < page_bytes(v); at += value_bytes)
    if (!values.fits(page + at, v.value_dim)) return false;
  return true;
}

// In elementwise formats: the index of dimension d of the key (or its rotated half) in slot `offset` of a page, and of
// the first dimension of its value.
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
