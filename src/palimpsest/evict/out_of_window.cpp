#include "palimpsest/evict/out_of_window.h"

#include <algorithm>
#include <cstdint>
#include <span>

namespace palimpsest {

int count_out_of_window(const SlotTable& table, PositionRange outside) {
  if (outside.empty()) return 0;
  const PositionView position = table.position();
  const auto relative = [&](Position p) {
    return static_cast<std::int32_t>(
        std::clamp<Position>(p - position.base(), PositionView::kSaturated + 1, kEmptySlot));
  };
  const std::int32_t first = relative(outside.first), last = relative(outside.last);
  int count = 0;
  for (const std::int32_t p : std::span(position.relative(), position.size())) count += p >= first && p < last;
  for (const SaturatedToken& token : position.saturated()) count += outside.contains(token.position) ? 1 : 0;
  return count;
}

void append_pages_out_of_window(const SlotTable& table, PositionRange outside, std::vector<int>& slots) {
  const int size = table.evicted_page();
  const auto first = static_cast<std::ptrdiff_t>(slots.size());
  const PositionView positions = table.position();
  const auto position = [&](int slot) { return positions[static_cast<std::size_t>(slot)]; };
  const auto all_outside = [&](int page) {
    for (int slot = page * size; slot < (page + 1) * size; ++slot)
      if (!outside.contains(position(slot))) return false;
    return true;
  };
  for (int page = 0; page < table.evicted_pages(); ++page)
    if (table.occupied_in_evicted(page) == size && all_outside(page)) slots.push_back(page * size);
  std::ranges::sort(slots.begin() + first, slots.end(), {}, position);  // the first slot of each page
  const auto pages = static_cast<std::ptrdiff_t>(slots.size()) - first;
  slots.resize(static_cast<std::size_t>(first + pages * size));
  for (std::ptrdiff_t i = pages; i-- > 0;)
    for (int slot = size; slot-- > 0;)
      slots[static_cast<std::size_t>(first + i * size + slot)] = slots[static_cast<std::size_t>(first + i)] + slot;
}

}  // namespace palimpsest
