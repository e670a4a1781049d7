// The memory of a cache, computed in advance: the terms of Cache::bytes_in_use() and bytes_tables(). A test compares
// them with real sessions.
//
// clang-format off
//   rows             pages of all heads x slots of a page x row    row: one token's key and value in one head, as wide as they are
//   columns          pages of all tables x slots of a page x slot  slot: relative position, score, statistics, rank if kept
//   counts           pages of all tables x 4                       tokens of each page
//   queues           entries of all tables x 4                     free slots; none with shift and gather
//   blocks           pages of all heads x 4                        ids of the pages
//   head_statistics  heads x floats x 4                            a policy's statistics per head
//   state            2 x floats x 4                                of recurrent layers, before and after a step
//   merged           max, of all tables                            tokens merged into other slots (cache/merged.h)
//   working          max                                           slots of new tokens, victims, moves, views, headroom
// clang-format on
//
// A head has ceil(tokens / slots of a page) pages (append: more, see Occupancy). Tables: see Cache::tables().
#pragma once

#include <cstddef>
#include <span>

#include "palimpsest/cache/cache.h"

namespace palimpsest {

// Upper bounds for a head: `tokens` it has, tokens `inserted` and `evicted` at once, `slots` in its pages (0: as many
// as tokens; mechanism append needs more, since it frees slots only when their page is empty).
struct Occupancy {
  long long tokens = 0, inserted = 1, evicted = 1, slots = 0;
  long long merged = 0;  // max tokens merged into other tokens' slots
};

struct Footprint {
  std::size_t heads = 0, tables = 0, page_slots = 0, slot_bytes = 0;  // heads: KV heads of all layers
  std::size_t row_bytes = 0, token_bytes = 0;  // of a row, 0 if heads differ in width; of the rows of all heads
  std::size_t head_pages = 0, table_pages = 0, queue_entries = 0;  // of all heads, of all tables
  // the terms
  std::size_t rows = 0, columns = 0, counts = 0, queues = 0, blocks = 0, head_statistics = 0, state = 0, merged = 0;
  std::size_t working = 0;
  std::size_t max_layer_entries = 0;  // max slots of a layer's heads, and entries of merged tokens

  std::size_t in_use() const { return rows; }
  std::size_t bookkeeping() const { return columns + counts + queues + blocks + head_statistics + state + merged; }
  std::size_t total() const { return in_use() + bookkeeping() + working; }
};

// `occupancy`: of each table, or one for all. Exact if tokens are inserted one by one or page_size divides `inserted`;
// else the real queues may be half as large.
Footprint footprint(const CacheOptions& options, std::span<const Occupancy> occupancy);
inline Footprint footprint(const CacheOptions& options, const Occupancy& occupancy) {
  return footprint(options, std::span(&occupancy, 1));
}

}  // namespace palimpsest
