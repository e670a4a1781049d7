// What a cache will hold, worked out beforehand: the terms of Cache::bytes_in_use() and bytes_tables(). A test runs
// real sessions and finds the same bytes.
//
// clang-format off
//   rows      pages of all heads x slots of a page x row     row: one token's key and value in one head
//   columns   pages of all tables x slots of a page x slot   slot: relative position, score, statistics, rank if kept
//   counts    pages of all tables x 4                        live tokens of each page
//   queues    places of all tables x 4                       free slots, not of shift and gather
//   blocks    pages of all heads x 4                         ids of the pages
//   of_heads  heads x floats x 4                             a policy's statistics of whole heads
//   merged    of all tables, at the most                     tokens that live in other slots (cache/merged.h)
//   working   beside the terms, at the most                  new tokens' slots, victims, moves, views, room to grow
// clang-format on
//
// where a head has ceil(tokens / slots of a page) pages (append: more, see Occupancy). One table serves all heads that
// decide alike and keep the same window, else each has its own.
#pragma once

#include <cstddef>
#include <span>

#include "palimpsest/cache/cache.h"

namespace palimpsest {

// How many tokens a head holds at the most; how many come at once, and leave at once when they are too many. `slots`:
// those of its pages at the most, if tokens may die in them (mechanism append); 0: as many as tokens.
struct Occupancy {
  long long tokens = 0, come = 1, leave = 1, slots = 0;
  long long merged = 0;  // tokens in other tokens' slots, at the most
};

struct Footprint {
  std::size_t heads = 0, tables = 0, page_slots = 0, row_bytes = 0, slot_bytes = 0;  // heads: KV heads of all layers
  std::size_t head_pages = 0, table_pages = 0, queue_places = 0;                     // of all heads, of all tables
  // the terms
  std::size_t rows = 0, columns = 0, counts = 0, queues = 0, blocks = 0, of_heads = 0, merged = 0;
  std::size_t working = 0;
  std::size_t widest_layer = 0;  // slots of a layer's heads, and places of the tokens merged into them, at the most

  std::size_t in_use() const { return rows; }
  std::size_t bookkeeping() const { return columns + counts + queues + blocks + of_heads + merged; }
  std::size_t total() const { return in_use() + bookkeeping() + working; }
};

// `occupancy`: of each table, or one for all. Exact where tokens come one by one or a page's slots divide `come`; else
// the queues may be one doubling smaller.
Footprint footprint(const CacheOptions& options, std::span<const Occupancy> occupancy);
inline Footprint footprint(const CacheOptions& options, const Occupancy& occupancy) {
  return footprint(options, std::span(&occupancy, 1));
}

}  // namespace palimpsest
