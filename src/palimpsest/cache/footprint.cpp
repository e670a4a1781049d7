#include "palimpsest/cache/footprint.h"

#include <algorithm>
#include <cassert>

namespace palimpsest {
namespace {

std::size_t pages_of(long long tokens, int page_size) {
  return static_cast<std::size_t>((tokens + page_size - 1) / page_size);
}

// Free slots are most when the first tokens have their pages and no slot yet, or when those that leave have left.
std::size_t most_free(const Occupancy& o, std::size_t pages, int page_size) {
  const auto slots = static_cast<std::size_t>(page_size);
  const std::size_t first = pages_of(std::min(o.tokens, o.come), page_size) * slots;
  const auto stay = static_cast<std::size_t>(std::max(0LL, o.tokens - o.leave));
  return std::max(first, pages * slots - stay);
}

}  // namespace

Footprint footprint(const CacheOptions& options, std::span<const Occupancy> occupancy) {
  const Cache empty(options);  // checks the options; knows a page's bytes and how many tables there are
  Footprint f;
  f.heads = static_cast<std::size_t>(options.layers) * static_cast<std::size_t>(options.kv_heads);
  f.tables = static_cast<std::size_t>(empty.tables());
  f.page_slots = static_cast<std::size_t>(options.page_size);
  f.row_bytes = page_bytes(empty.view(0)) / f.page_slots;
  f.slot_bytes = SlotTable::slot_bytes(options.track_rank, options.columns);
  assert(occupancy.size() == 1 || occupancy.size() == f.tables);
  for (std::size_t t = 0; t < f.tables; ++t) {
    const Occupancy& o = occupancy[occupancy.size() == 1 ? 0 : t];
    assert(o.tokens >= 0 && o.come >= 1 && o.leave >= 0);
    const std::size_t pages = pages_of(std::max(o.tokens, o.slots), options.page_size);
    f.head_pages += pages * (f.heads / f.tables);
    f.table_pages += pages;
    f.merged += MergedTokens::most_bytes(static_cast<std::size_t>(o.merged),
                                         pages * static_cast<std::size_t>(options.page_size), options.columns);
    if (options.mechanism != Mechanism::kShift && options.mechanism != Mechanism::kGather && o.tokens > 0)
      f.queue_places += SlotQueue::places_for(most_free(o, pages, options.page_size));
  }
  f.rows = f.head_pages * f.page_slots * f.row_bytes;
  f.columns = f.table_pages * f.page_slots * f.slot_bytes;
  f.counts = f.table_pages * sizeof(int);
  f.queues = f.queue_places * sizeof(int);
  f.blocks = f.head_pages * sizeof(std::byte*);
  f.of_heads = f.heads * static_cast<std::size_t>(options.head_floats) * sizeof(float);
  return f;
}

}  // namespace palimpsest
