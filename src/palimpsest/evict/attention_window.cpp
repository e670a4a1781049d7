#include "palimpsest/evict/attention_window.h"

#include <algorithm>
#include <cassert>

namespace palimpsest {

void add_to_window(const Needs& needs, SlotTable& table, std::span<const float> weights) {
  const int parts = needs.parts();
  assert(table.columns() == parts && !table.fresh().empty());
  const Position size = (needs.attention_window + parts - 1) / parts;
  const Position before = table.next() - static_cast<Position>(table.fresh().size()) - 1;  // the last query but these
  const Position last = (table.next() - 1) / size, first = before < 0 ? 0 : before / size + 1;
  for (Position part = std::max(first, last - parts + 1); part <= last; ++part)
    std::ranges::fill(table.column(static_cast<int>(part % parts)), 0.0F);
  const auto column = table.column(static_cast<int>(last % parts));
  for (std::size_t slot = 0; slot < column.size(); ++slot) column[slot] += weights[slot];
}

void window_sum(const Needs& needs, const Cache& cache, int t, std::vector<float>& sum) {
  const int heads = cache.options().kv_heads, first = needs.whole_layer ? t / heads * heads : t;
  const int tables = needs.whole_layer ? heads : 1;
  sum.assign(static_cast<std::size_t>(cache.table(t).slots()), 0);
  for (int other = first; other < first + tables; ++other) {
    const SlotTable& table = cache.table(other);
    assert(static_cast<std::size_t>(table.slots()) == sum.size() && "heads of a layer decide alike");
    for (int part = 0; part < table.columns(); ++part) {
      const auto column = table.column(part);
      for (std::size_t slot = 0; slot < sum.size(); ++slot) sum[slot] += column[slot];
    }
  }
  if (tables > 1)
    for (float& x : sum) x /= static_cast<float>(tables);
}

}  // namespace palimpsest
