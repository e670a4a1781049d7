#include "palimpsest/evict/attention_window.h"

#include <algorithm>
#include <cassert>

namespace palimpsest {

namespace {

// Calls clear(part) for each part that this step's queries start; returns the part of the last query.
template <typename Clear>
int renew_parts(const Signals& signals, const SlotTable& table, Clear clear) {
  assert(table.columns() == signals.columns() && !table.inserted().empty());
  const int parts = signals.parts();
  const Position size = signals.attention_window->part_size();
  const Position before =
      table.next() - static_cast<Position>(table.inserted().size()) - 1;  // the last query before this step
  const Position last = (table.next() - 1) / size, first = before < 0 ? 0 : before / size + 1;
  for (Position part = std::max(first, last - parts + 1); part <= last; ++part) clear(static_cast<int>(part % parts));
  return static_cast<int>(last % parts);
}

}  // namespace

void add_to_window(const Signals& signals, SlotTable& table, std::span<const float> weights,
                   std::span<const float> sums) {
  const int part = renew_parts(signals, table, [&](int c) { std::ranges::fill(table.column(c), 0.0F); });
  const auto add = [&](std::span<float> column, std::span<const float> received) {
    for (std::size_t slot = 0; slot < column.size(); ++slot) column[slot] += received[slot];
  };
  add(table.column(part), weights);
  if (signals.sums()) add(table.column(signals.sum_column()), sums);
}

void add_to_window(const Signals& signals, const SlotTable& table, MergedTokens& merged, std::span<const float> weights,
                   std::span<const float> sums) {
  const auto all = merged.tokens();
  const int part = renew_parts(signals, table, [&](int c) {
    for (std::size_t i = 0; i < all.size(); ++i) merged.statistics(i)[static_cast<std::size_t>(c)] = 0;
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto entry = static_cast<std::size_t>(table.slots() + all[i].entry);
    merged.statistics(i)[static_cast<std::size_t>(part)] += weights[entry];
    if (signals.sums()) merged.statistics(i)[static_cast<std::size_t>(signals.sum_column())] += sums[entry];
  }
}

void window_sum(const Signals& signals, const Cache& cache, int t, std::vector<float>& sum) {
  const int layer = cache.geometry().layer_of(t);
  const int first = signals.whole_layer() ? cache.geometry().first_head(layer) : t;
  const int tables = signals.whole_layer() ? cache.geometry().layer(layer).kv_heads : 1;
  sum.assign(static_cast<std::size_t>(cache.table(t).slots()), 0);
  for (int other = first; other < first + tables; ++other) {
    const SlotTable& table = cache.table(other);
    assert(static_cast<std::size_t>(table.slots()) == sum.size() && "heads of a layer decide alike");
    for (int part = 0; part < signals.parts(); ++part) {
      const auto column = table.column(part);
      for (std::size_t slot = 0; slot < sum.size(); ++slot) sum[slot] += column[slot];
    }
  }
  if (tables > 1)
    for (float& x : sum) x /= static_cast<float>(tables);
}

}  // namespace palimpsest
