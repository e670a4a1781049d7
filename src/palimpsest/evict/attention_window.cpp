#include "palimpsest/evict/attention_window.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace palimpsest {

WindowParts::WindowParts(const Signals& signals) : parts_(signals.parts()) {
  if (parts_ == 0) return;
  part_size_ = signals.attention_window->part_size();
  queries_ = signals.attention_window->queries;
  past_ = signals.attention_window->past;
}

int WindowParts::total() const {
  return std::accumulate(size_.begin(), size_.end(), 0);
}

int WindowParts::queries() const {
  return std::accumulate(rows().begin(), rows().end(), 0);
}

void WindowParts::forget(int column) {
  size_[at(column)] = 0;
  cleared_ |= 1U << column;
  int kept = 0;  // of the step's rows: older ones than those that follow
  for (int row = 0; row < row_count_; ++row) {
    if (columns_[at(row)] == column) continue;
    rows_[at(kept)] = rows_[at(row)];
    columns_[at(kept++)] = columns_[at(row)];
  }
  row_count_ = kept;
}

void WindowParts::begin_part() {
  newest_ = (newest_ + 1) % parts_;
  forget(newest_);
}

void WindowParts::limit() {
  const int max = past_ && size_[at(newest_)] < queries_ ? 2 * queries_ - 1 : queries_;
  for (int i = 1, sum = total(); i < parts_ && sum > max; ++i) {  // oldest first
    const int oldest = (newest_ + i) % parts_;
    sum -= size_[at(oldest)];
    if (size_[at(oldest)] > 0) forget(oldest);
  }
}

void WindowParts::add(int count, long long left) {
  row_count_ = 0;
  cleared_ = 0;
  if (parts_ == 0) return;
  // The last `queries` of a long step, and of the prompt, begin at these queries of the step.
  const long long of_step = count - queries_, of_prompt = left < 0 ? -1 : count + left - queries_;
  for (int query = std::max(0, count - queries_); query < count;) {
    const bool begins = query == of_step || query == of_prompt || size_[at(newest_)] == part_size_;
    if (begins && size_[at(newest_)] > 0) begin_part();
    int end = std::min(count, query + part_size_ - size_[at(newest_)]);
    if (query < of_prompt && of_prompt < end) end = static_cast<int>(of_prompt);
    rows_[at(row_count_)] = end - query;
    columns_[at(row_count_++)] = newest_;
    size_[at(newest_)] += end - query;
    limit();
    query = end;
  }
  // The past of a text that began with a shorter prompt.
  if (past_ && left == 0 && size_[at(newest_)] == total() && size_[at(newest_)] < queries_) newest_ = (newest_ + 1) % 2;
}

void WindowParts::repeat(long long tokens, int chunk) {
  clear();
  for (; tokens >= chunk; tokens -= chunk) add(chunk, INT32_MAX);
}

void WindowParts::clear() {
  newest_ = row_count_ = 0;
  size_.fill(0);
}

void WindowParts::assume(Position next) {
  clear();
  if (parts_ == 0 || next == 0) return;
  const Position last = (next - 1) / part_size_;
  newest_ = static_cast<int>(last % parts_);
  for (Position part = std::max<Position>(0, last - parts_ + 1); part <= last; ++part)
    size_[static_cast<std::size_t>(part % parts_)] =
        part < last ? part_size_ : static_cast<int>((next - 1) % part_size_) + 1;
}

void WindowParts::save(ByteWriter& out) const {
  out.put(newest_);
  out.array(std::span(size_).first(at(parts_)));
}

void WindowParts::load(ByteReader& in) {
  clear();
  newest_ = in.get<int>();
  const std::vector<int> sizes = in.array<int>();
  in.require(newest_ >= 0 && newest_ < std::max(1, parts_) && std::ssize(sizes) == parts_ &&
                 std::ranges::all_of(sizes, [&](int size) { return size >= 0 && size <= part_size_; }),
             "a window of attention that does not fit");
  std::ranges::copy(sizes, size_.begin());
}

void add_to_window(const Signals& signals, const WindowParts& parts, SlotTable& table, const Rows& weights,
                   std::span<const float> sums) {
  assert(table.columns() >= signals.columns() && weights.count == std::ssize(parts.rows()));
  const auto add = [&](std::span<float> column, std::span<const float> received) {
    for (std::size_t slot = 0; slot < column.size(); ++slot) column[slot] += received[slot];
  };
  for (int c = 0; c < signals.parts(); ++c)
    if (parts.cleared(c)) std::ranges::fill(table.column(c), 0.0F);
  for (int row = 0; row < weights.count; ++row) add(table.column(parts.column(row)), weights[row]);
  if (signals.sums()) add(table.column(signals.sum_column()), sums);
}

void add_to_window(const Signals& signals, const WindowParts& parts, const SlotTable& table, MergedTokens& merged,
                   const Rows& weights, std::span<const float> sums) {
  const auto all = merged.tokens();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto statistics = merged.statistics(i);
    for (int c = 0; c < signals.parts(); ++c)
      if (parts.cleared(c)) statistics[at(c)] = 0;
    if (!all[i].in_cluster()) continue;  // no query attends to it
    const auto entry = static_cast<std::size_t>(table.slots() + all[i].entry);
    for (int row = 0; row < weights.count; ++row) statistics[at(parts.column(row))] += weights[row][entry];
    if (signals.sums()) statistics[at(signals.sum_column())] += sums[entry];
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
