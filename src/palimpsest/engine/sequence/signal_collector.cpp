#include "palimpsest/engine/sequence/signal_collector.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "palimpsest/core/growth.h"
#include "palimpsest/engine/mechanism/query_statistics.h"

namespace palimpsest {
namespace {

// Numbers that weights of a head's tokens consist of: one per slot, and per merged token.
std::size_t weights_count(const SlotsView& slots) {
  return at(slots.slots + (slots.merged == nullptr ? 0 : slots.merged->entries()));
}

// The same, of later steps too as long as the head has these slots.
std::size_t max_weights(const SlotsView& slots) {
  return at(slots.slots + (slots.merged == nullptr ? 0 : slots.merged->max_entries()));
}

}  // namespace

SignalCollector::SignalCollector(const MethodPlan& plan, Cache& cache, Evictor& evictor, DraftPreview& preview,
                                 bool keep_weights)
    : plan_(plan), cache_(cache), evictor_(evictor), preview_(preview), keep_weights_(keep_weights) {
  const auto allocate = [&](Buffers& buffers) {
    buffers.of_row.resize(at(cache.geometry().max_kv_heads()));
    buffers.of_head.resize(at(cache.geometry().heads()));
  };
  if (keep_weights) kept_.resize(at(cache.geometry().heads()));
  if (plan.signals().weights() || keep_weights) allocate(weights_);
  if (plan.signals().sums()) allocate(sums_);
}

bool SignalCollector::decides(int head) const {
  return evictor_.decides(cache_.table_of(head));
}

bool SignalCollector::wants_weights(int head) const {
  return head >= first_head_ && head < end_head_ && (!signals_.weights() || decides(head));
}

void SignalCollector::begin(SequenceStep& step, Phase phase, long long left) {
  signals_ = plan_.signals(phase);
  first_head_ = cache_.geometry().first_head(step.layers.first);
  end_head_ = cache_.geometry().end_head(step.layers.last);
  drafts_ = step.request.drafts;
  keeps_ = keep_weights_ && phase == Phase::kDecode && !drafts_;
  for (KeptWeights& each : kept_) each.position.clear(), each.weight.clear();
  const bool weights = signals_.weights() || keeps_;
  if (weights || signals_.reads_inserted() || signals_.queries()) step.receiver = this;
  if (phase == Phase::kDecode && !drafts_ && !keeps_ && plan_.fading_on_device() && evictor_.one_due(cache_)) {
    step.fading = plan_.fading_on_device();
    return;
  }
  fetch_scores();
  step.report_kv = signals_.reads_inserted();
  step.report_queries = signals_.queries();
  step.request.weight_reduction = signals_.reduction();
  if (drafts_) {
    std::vector<bool> heads(at(cache_.geometry().heads()));
    for (std::size_t head = 0; head < heads.size(); ++head)
      heads[head] = signals_.weights() && decides(static_cast<int>(head));
    held_.begin(cache_, static_cast<int>(step.tokens.size()), heads);
    if (signals_.weights()) step.weights = held_.weights(), step.request.weights_stride = held_.weights_stride();
  } else if (weights) {
    if (signals_.attention_window) {
      evictor_.scorer().count_queries(static_cast<int>(step.tokens.size()), left);
      step.request.weights_rows = evictor_.scorer().window().rows();
      step.request.weights_queries = evictor_.scorer().window().queries();
    }
    stride_ = 0;
    for (int head = first_head_; head < end_head_; ++head)
      if (wants_weights(head)) stride_ = std::max(stride_, static_cast<int>(max_weights(*cache_.head(head).slots)));
    make_room(weights_, std::max<std::size_t>(1, step.request.weights_rows.size()));
    make_room(sums_, 1);
    step.weights = weights_.of_head.data();
    if (!sums_.of_head.empty()) step.sums = sums_.of_head.data();
    step.request.weights_stride = stride_;
  }
}

// Those of the step's tokens on the device are of the tokens that they replace.
void SignalCollector::fetch_scores() {
  if (cache_.storage() == nullptr || !cache_.storage()->has_scores()) return;
  cache_.fetch_scores();
  for (int t = 0; t < cache_.tables(); ++t)
    for (const int slot : cache_.table(t).inserted()) cache_.table(t).score()[at(slot)] = 0;
}

void SignalCollector::guard(int head, std::span<float> mask) {
  const int t = cache_.table_of(head);
  const SlotTable& table = std::as_const(cache_).table(t);
  const Guard guard = evictor_.guard(table, t);
  const PositionView position = table.position();
  std::ranges::fill(mask, -std::numeric_limits<float>::infinity());
  for (int slot = 0; slot < table.slots(); ++slot)
    if (position[at(slot)] != kNoPosition && guard.admits(position[at(slot)])) mask[at(slot)] = 0;
}

std::optional<RelativeRange> SignalCollector::victims_within(int head) {
  const int t = cache_.table_of(head);
  const SlotTable& table = std::as_const(cache_).table(t);
  const Guard guard = evictor_.guard(table, t);
  if (!guard.pins.empty() || !table.position().saturated().empty()) return {};
  return RelativeRange{table.relative_position(guard.first),
                       table.relative_position(std::max(guard.first, guard.last))};
}

void SignalCollector::make_room(Buffers& buffers, std::size_t rows) {
  const auto wanted_of = [&](std::size_t head) { return wants_weights(static_cast<int>(head)); };
  const auto row_of = [&](std::size_t head) -> std::vector<float>& {
    return buffers.of_row[at(cache_.geometry().kv_head_of(static_cast<int>(head)))];
  };
  for (std::size_t head = 0; head < buffers.of_head.size(); ++head) {
    if (!wanted_of(head)) continue;
    std::vector<float>& row = row_of(head);
    const std::size_t floats = std::max(row.size(), rows * at(stride_));
    reserve_for(row, floats);
    row.resize(floats);
  }
  for (std::size_t head = 0; head < buffers.of_head.size(); ++head)
    buffers.of_head[head] = wanted_of(head) ? row_of(head).data() : nullptr;
}

void SignalCollector::receive(const StepSignal& signal) noexcept {
  try {
    switch (signal.kind) {
      case StepSignal::Kind::kWeights:  // the step wrote them into the buffers, or into those of held_
        if (!drafts_)
          deliver({.kind = signal.kind, .head = signal.head, .rows = weights_of(signal.head)}, sums_of(signal.head));
        return;
      case StepSignal::Kind::kKeysAndValues:
        if (drafts_) return held_.hold_kv(signal.head, signal.rows, signal.values);
        break;
      case StepSignal::Kind::kQueries:
        if (!decides(signal.head)) return;
        if (drafts_) return held_.hold_queries(signal.head, signal.member, signal.rows);
        break;
      case StepSignal::Kind::kVictim:
        return evictor_.set_next_victim(cache_.table_of(signal.head), signal.member);
    }
    deliver(signal, {});
  } catch (...) {
    fail();
  }
}

std::span<const SlotPatch> SignalCollector::find_patches(int head, int query, Rows key, Rows value) noexcept {
  try {
    if (!signals_.weights())
      return preview_.next({.kind = StepSignal::Kind::kKeysAndValues, .head = head, .rows = key, .values = value},
                           query);
    const auto weights = held_.weights(cache_, head, query - 1);
    const int count = static_cast<int>(weights.size());
    return preview_.next({.kind = StepSignal::Kind::kWeights, .head = head, .rows = {weights.data(), 1, count, count}},
                         query);
  } catch (...) {
    fail();
    return {};
  }
}

// Keeps the exception in flight, if it is the first.
void SignalCollector::fail() noexcept {
  if (!failed_.test_and_set()) failure_ = std::current_exception();
}

void SignalCollector::check() {
  if (!failed_.test()) return;
  failed_.clear();
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

void SignalCollector::replay(int index) {
  const HeadGeometry& geometry = cache_.geometry();
  if (signals_.attention_window) evictor_.scorer().count_queries(1, -1);
  for (int head = 0; head < geometry.heads(); ++head) {
    if (!decides(head)) continue;
    if (signals_.weights()) {
      const auto weights = held_.weights(cache_, head, index);
      const int count = static_cast<int>(weights.size());
      deliver({.kind = StepSignal::Kind::kWeights, .head = head, .rows = {weights.data(), 1, count, count}},
              signals_.sums() ? weights : std::span<const float>());
    }
    if (signals_.reads_inserted())
      deliver({.kind = StepSignal::Kind::kKeysAndValues,
               .head = head,
               .rows = held_.key(head, index),
               .values = held_.value(head, index)},
              {});
    for (int member = 0; signals_.queries() && member < geometry.layer_geometry(head).group(); ++member)
      deliver({.kind = StepSignal::Kind::kQueries,
               .head = head,
               .member = member,
               .rows = held_.query(head, member, index)},
              {});
  }
}

void SignalCollector::deliver(const StepSignal& signal, std::span<const float> sums) {
  const int table = cache_.table_of(signal.head);
  switch (signal.kind) {
    case StepSignal::Kind::kWeights:
      if (keeps_) keep(signal.head, signal.rows);
      if (signals_.weights()) evictor_.on_weights(cache_, table, signal.rows, sums);
      return;
    case StepSignal::Kind::kKeysAndValues:
      return evictor_.on_insert_kv(cache_, table, signal.rows, signal.values);
    case StepSignal::Kind::kVictim:
      return;
    case StepSignal::Kind::kQueries:
      const int width = signal.rows.width;
      const SlotTable& of_head = cache_.table(table);
      const auto of_member = [&](std::span<float> all, std::size_t floats) {
        return all.subspan(at(signal.member) * floats, floats);
      };
      if (signals_.query_moments)
        add_queries(signal.rows, of_head.next() - signal.rows.count,
                    of_member(query_statistics(cache_, signal.head), at(query_floats(width))));
      if (const auto& references = signals_.references)
        keep_references(signal.rows, of_head.position(of_head.inserted().front()),
                        of_member(reference_queries(cache_, signal.head, *references), references->floats(width)));
  }
}

Rows SignalCollector::weights_of(int head) const {
  const bool in_rows = signals_.weights() && signals_.attention_window;
  const int rows = in_rows ? static_cast<int>(evictor_.scorer().window().rows().size()) : 1;
  return {weights_.of_row[at(cache_.geometry().kv_head_of(head))].data(), rows,
          static_cast<int>(weights_count(*cache_.head(head).slots)), stride_};
}

std::span<const float> SignalCollector::sums_of(int head) const {
  if (sums_.of_row.empty()) return {};
  return std::span(sums_.of_row[at(cache_.geometry().kv_head_of(head))]).first(weights_count(*cache_.head(head).slots));
}

void SignalCollector::keep(int head, const Rows& weights) {
  KeptWeights& kept = kept_[at(head)];
  const PositionView positions = cache_.table(cache_.table_of(head)).position();
  kept.position.assign(positions.begin(), positions.end());
  kept.weight.assign(positions.size(), 0);  // without those of merged tokens, which follow
  for (int row = 0; row < weights.count; ++row)
    for (std::size_t slot = 0; slot < kept.weight.size(); ++slot) kept.weight[slot] += weights[row][slot];
}

}  // namespace palimpsest
