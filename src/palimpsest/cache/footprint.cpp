#include "palimpsest/cache/footprint.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <vector>

#include "palimpsest/core/growth.h"

namespace palimpsest {
namespace {

constexpr std::size_t kObjects = 4096;  // fixed-size objects of a cache and a sequence

std::size_t pages_of(long long tokens, int page_size) {
  return static_cast<std::size_t>((tokens + page_size - 1) / page_size);
}

// The number of free slots peaks after the first pages were mapped and before their slots are taken, or after an
// eviction.
std::size_t max_free(const Occupancy& o, std::size_t pages, int page_size) {
  const auto slots = static_cast<std::size_t>(page_size);
  const std::size_t first = pages_of(std::min(o.tokens, o.inserted), page_size) * slots;
  const auto stay = static_cast<std::size_t>(std::max(0LL, o.tokens - o.evicted));
  return std::max(first, pages * slots - stay);
}

// Working memory of a table, in the cache and in the evictor. `pages`: of each of its heads.
std::size_t working_of(const CacheOptions& options, const Occupancy& o, std::size_t pages, std::size_t heads) {
  const std::size_t slots = pages * static_cast<std::size_t>(options.page_size),
                    columns = static_cast<std::size_t>(options.columns);
  const auto tokens = static_cast<std::size_t>(o.tokens), inserted = static_cast<std::size_t>(o.inserted);
  const bool evicts = o.evicted > 0;
  const std::size_t room = (capacity_for(slots) - slots) * SlotTable::slot_bytes(options.track_rank, options.columns) +
                           (capacity_for(pages) - pages) * (sizeof(int) + heads * sizeof(PageId));
  const std::size_t moves = evicts ? std::bit_ceil(tokens) * sizeof(Move) : 0;
  const std::size_t victims = !evicts ? 0 : o.evicted > 1 || inserted > 1 ? slots * sizeof(int) : sizeof(int);
  const std::size_t merging =
      std::min(inserted - 1, static_cast<std::size_t>(o.merged)) * (sizeof(MergedToken) + columns * sizeof(float));
  const std::size_t objects = sizeof(SlotTable) + columns * sizeof(std::vector<float>) + sizeof(SlotsView) +
                              sizeof(MergedTokens) + sizeof(MergedView) + sizeof(std::vector<Move>) +
                              sizeof(std::vector<bool>) + sizeof(std::vector<int>) + 3 * sizeof(int) +
                              heads * (sizeof(HeadPages) + sizeof(std::vector<PageId>));
  // Defragmentation at the end of a prompt works on copies of the tables.
  const std::size_t copies = evicts && inserted > 1
                                 ? slots * SlotTable::slot_bytes(options.track_rank, options.columns) +
                                       pages * (2 * sizeof(int) + heads * sizeof(PageId)) +
                                       SlotQueue::ring_size(max_free(o, pages, options.page_size)) * sizeof(int)
                                 : 0;
  return room + moves + victims + merging + objects + copies + std::bit_ceil(inserted) * sizeof(int) +
         (options.track_rank && (evicts || options.original_until > 0) ? tokens * sizeof(int) : 0);
}

}  // namespace

Footprint footprint(const CacheOptions& options, std::span<const Occupancy> occupancy) {
  const Cache empty(options);  // checks the options, computes page bytes and tables
  Footprint f;
  f.heads = static_cast<std::size_t>(options.geometry.heads());
  f.tables = static_cast<std::size_t>(empty.tables());
  f.page_slots = static_cast<std::size_t>(options.page_size);
  f.slot_bytes = SlotTable::slot_bytes(options.track_rank, options.columns);
  assert(occupancy.size() == 1 || occupancy.size() == f.tables);
  const std::vector<std::size_t> page_bytes = page_bytes_of_heads(options);
  std::vector<std::size_t> heads_of_tables(f.tables), bytes_of_tables(f.tables);  // bytes: a page of each head
  for (int head = 0; head < options.geometry.heads(); ++head) {
    const auto table = static_cast<std::size_t>(empty.table_of(head));
    ++heads_of_tables[table];
    bytes_of_tables[table] += page_bytes[static_cast<std::size_t>(head)];
    f.token_bytes += page_bytes[static_cast<std::size_t>(head)] / f.page_slots;
  }
  if (options.geometry.one_width()) f.row_bytes = page_bytes.front() / f.page_slots;
  std::size_t widest = 0, max_slots = 0;
  for (std::size_t t = 0; t < f.tables; ++t) {
    const Occupancy& o = occupancy[occupancy.size() == 1 ? 0 : t];
    const std::size_t heads_of_table = heads_of_tables[t];
    assert(o.tokens >= 0 && o.inserted >= 1 && o.evicted >= 0);
    const std::size_t pages = pages_of(std::max(o.tokens, o.slots), options.page_size);
    f.head_pages += pages * heads_of_table;
    f.rows += pages * bytes_of_tables[t];
    f.table_pages += pages;
    const std::size_t slots = pages * static_cast<std::size_t>(options.page_size);
    f.merged += MergedTokens::max_bytes(static_cast<std::size_t>(o.merged), slots, options.columns);
    f.working += working_of(options, o, pages, heads_of_table);
    max_slots = std::max(max_slots, slots);
    widest = std::max(widest, slots + MergedTokens::max_entries(static_cast<std::size_t>(o.merged), slots));
    if (!traits(options.mechanism).moves_rows && o.tokens > 0)
      f.queue_entries += SlotQueue::ring_size(max_free(o, pages, options.page_size));
  }
  f.columns = f.table_pages * f.page_slots * f.slot_bytes;
  f.counts = f.table_pages * sizeof(int);
  f.queues = f.queue_entries * sizeof(int);
  f.blocks = f.head_pages * sizeof(PageId);
  f.max_layer_entries = capacity_for(widest) * static_cast<std::size_t>(options.geometry.max_kv_heads());
  f.working += kObjects + capacity_for(max_slots) * sizeof(std::int32_t);  // a column's copy while it grows
  f.state = 2 * options.state_floats * sizeof(float);
  f.head_statistics = f.heads * static_cast<std::size_t>(options.head_floats) * sizeof(float);
  return f;
}

}  // namespace palimpsest
