#include "palimpsest/engine/sequence/held_signals.h"

#include <algorithm>

#include "palimpsest/core/growth.h"

namespace palimpsest {
namespace {

int max_entries(const SlotsView& slots) {
  return slots.merged == nullptr ? 0 : slots.merged->max_entries();
}

}  // namespace

void HeldSignals::begin(const Cache& cache, int tokens, const std::vector<bool>& weights) {
  const auto heads = at(cache.geometry().heads());
  keys_.resize(heads);
  values_.resize(heads);
  queries_.resize(heads);
  weights_.resize(heads);
  slots_.assign(heads, 0);
  weights_of_.assign(heads, nullptr);
  stride_ = 0;
  for (std::size_t head = 0; head < heads; ++head) {
    const SlotsView& slots = *cache.head(static_cast<int>(head)).slots;
    queries_[head].resize(at(cache.geometry().layer_geometry(static_cast<int>(head)).group()));
    slots_[head] = slots.slots;
    stride_ = std::max<std::ptrdiff_t>(stride_, slots.slots + max_entries(slots));
  }
  for (std::size_t head = 0; head < heads; ++head) {
    if (!weights[head]) continue;
    auto& rows = weights_[head];
    const std::size_t wanted = std::max(rows.size(), at(tokens) * static_cast<std::size_t>(stride_));
    rows.reserve(at(tokens) * capacity_for(static_cast<std::size_t>(stride_)));
    rows.resize(wanted);
    weights_of_[head] = rows.data();
  }
}

void HeldSignals::hold(Held& held, Rows rows) {
  held.width = rows.width;
  held.data.clear();
  held.data.reserve(at(rows.count) * at(rows.width));
  for (int i = 0; i < rows.count; ++i) held.data.insert(held.data.end(), rows[i].begin(), rows[i].end());
}

void HeldSignals::hold_kv(int head, Rows keys, Rows values) {
  hold(keys_[at(head)], keys);
  hold(values_[at(head)], values);
}

void HeldSignals::hold_queries(int head, int member, Rows queries) {
  hold(queries_[at(head)][at(member)], queries);
}

Rows HeldSignals::row(const std::vector<Held>& held, int head, int index) {
  const Held& of = held[at(head)];
  return {of.data.data() + static_cast<std::ptrdiff_t>(index) * of.width, 1, of.width, of.width};
}

Rows HeldSignals::query(int head, int member, int index) const {
  return row(queries_[at(head)], member, index);
}

std::span<const float> HeldSignals::weights(const Cache& cache, int head, int index) const {
  thread_local std::vector<float> row;
  const SlotsView& slots = *cache.head(head).slots;
  const float* const from = weights_[at(head)].data() + index * stride_;
  const int before = slots_[at(head)], entries = slots.merged == nullptr ? 0 : slots.merged->entries();
  row.assign(at(slots.slots + entries), 0);
  std::copy_n(from, std::min(before, slots.slots), row.begin());
  std::copy_n(from + before, entries, row.begin() + slots.slots);
  return row;
}

}  // namespace palimpsest
