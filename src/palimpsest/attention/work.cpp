#include "palimpsest/attention/work.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <type_traits>

namespace palimpsest {

HeadCounts counts_of(const LayerStep& step, int sequence, int kv_head) {
  const SequenceTokens& tokens = step.tokens[sequence];
  const SlotsView& slots = *step.cache[sequence].head[kv_head].slots;
  const int index = sequence * step.shape.kv_heads + kv_head;
  return {.slots = slots.slots,
          .tokens = tokens.count,
          .weights_queries = tokens.weights_queries,
          .weight_rows = static_cast<int>(tokens.weights_rows.size()),
          .merged_entries = slots.merged == nullptr ? -1 : slots.merged->max_entries(),
          .bias = slots.bias != nullptr,
          .received = step.weights != nullptr && step.weights[index] != nullptr,
          .sums = step.sums != nullptr && step.sums[index] != nullptr,
          .drafts = tokens.drafts,
          .patched = tokens.draft_rows != nullptr,
          .in_order = tokens.draft_rows != nullptr && slots.patches.empty(),
          .materialized = tokens.rotation == Rotation::kMaterialized && step.shape.rope != RopeKind::kNone};
}

HeadPlan plan_head(const LayerStep& step, int sequence, int kv_head) {
  const HeadCounts head = counts_of(step, sequence, kv_head);
  const AttentionShape& shape = step.shape;
  assert(!head.sums || (head.received && step.tokens[sequence].weight_reduction == WeightReduction::kMeanOverGroup));
  HeadPlan p{};
  p.sequence = sequence;
  p.kv_head = kv_head;
  p.index = sequence * shape.kv_heads + kv_head;
  const int slot_splits = (head.slots + kSplit - 1) / kSplit;
  if (head.tokens == 0) {
    p.weights_units = head.received ? slot_splits : 0;  // all zero
    return p;
  }
  p.block_queries = std::max(1, kRows / shape.group());
  p.query_blocks = (head.tokens + p.block_queries - 1) / p.block_queries;
  p.in_order = head.in_order;
  p.splits = p.query_blocks == 1 && head.merged_entries < 0 ? std::max(1, slot_splits) : 1;
  p.insert_units = p.query_blocks == 1 ? 0 : (head.tokens + kInsertTokens - 1) / kInsertTokens;
  assert(!head.drafts || (head.tokens <= max_draft_tokens(shape.group()) && !head.sums && head.weight_rows == 0));
  assert(!head.patched || (head.drafts && head.merged_entries < 0 && !unrotated_keys(step.tokens[sequence].rotation)));
  assert(head.weight_rows == 0 || head.weights_queries <= head.tokens);
  assert(head.weight_rows <= 1 || step.tokens[sequence].weight_reduction != WeightReduction::kMaxOverAll);
  assert(!head.materialized || kv_format(step.cache[sequence].key_type).elementwise());
  if (head.materialized) p.rotate_units = slot_splits;
  if (head.merged_entries >= 0) {
    assert(!step.tokens[sequence].two_query);
    assert(step.tokens[sequence].weight_reduction == WeightReduction::kMeanOverGroup);
    return p;
  }
  const bool keep = each_alone(step.tokens[sequence]) && p.query_blocks == 1 && head.weights_queries > 0;
  if (head.received && keep)
    p.kept_queries = head.sums || head.drafts ? head.tokens : std::min(head.weights_queries, head.tokens);
  if (head.received && !keep) p.weights_units = slot_splits;
  return p;
}

HeadStep head_step(const LayerStep& step, const HeadPlan& plan) {
  HeadStep w{};
  static_cast<HeadPlan&>(w) = plan;
  w.step = &step;
  w.cache = &step.cache[w.sequence];
  w.keys = &key_kernels_of(w.cache->key_type);
  w.values = &value_kernels_of(w.cache->value_type);
  w.tokens = &step.tokens[w.sequence];
  w.pages = &w.cache->head[w.kv_head];
  w.window = step.window(w.sequence, w.kv_head);
  w.patches = w.slots().patches;
  w.queries = w.tokens->count;
  const bool in_local = step.local == INT32_MAX || w.tokens->position < step.local;  // position 0 is in the window
  w.all_visible = w.tokens->count == 1 && w.window == INT32_MAX && in_local && w.slots().occupied == w.slots().slots &&
                  w.slots().later == 0;
  w.merged = w.tokens->count == 0 ? nullptr : w.slots().merged;
  w.rank_tiles = step.rank_tiles == nullptr ? nullptr : step.rank_tiles[w.sequence];
  w.received = step.weights == nullptr ? nullptr : step.weights[w.index];
  w.sums = step.sums == nullptr ? nullptr : step.sums[w.index];
  return w;
}

SlotRange insert_range(const HeadStep& w, int unit) {
  const int* const inserted = w.slots().inserted;
  int min = inserted[0], max = inserted[0];
  for (int t = 1; t < w.tokens->count; ++t) {
    min = std::min(min, inserted[t]);
    max = std::max(max, inserted[t]);
  }
  const int first = min / kTile, units = std::max(1, w.insert_units);
  const int tiles = (max / kTile + 1 - first + units - 1) / units;  // of a unit
  return {(first + unit * tiles) * kTile, (first + (unit + 1) * tiles) * kTile};
}

void report_misfit(const HeadStep& w, int token, bool value, const float* row, int count) {
  float max = 0;
  for (int d = 0; d < count && !std::isnan(max); ++d)
    max = std::isnan(row[d]) ? row[d] : std::max(max, std::abs(row[d]));
  w.step->misfits->report({w.sequence, w.step->layer, w.kv_head, value, max, w.tokens->drafts ? token : 0});
}

void HeadStep::set_arena(float* memory) {
  floats = 0;
  const auto take = [&](bool needed, std::size_t count) {
    float* const taken = needed && memory != nullptr ? memory + floats : nullptr;
    if (needed) floats += round_up(count, kTile);
    return taken;
  };
  if (tokens->count == 0) return;
  const std::size_t all_rows = rows(), kept_rows = static_cast<std::size_t>(kept_queries) * group();
  const std::size_t all_blocks = blocks(),
                    keys = static_cast<std::size_t>(slots().slots) / kTile * key_tile_bytes(*cache);
  partial = take(splits > 1, splits * all_rows * row_floats(step->shape));
  kept = take(kept_queries > 0, kept_rows * all_blocks * kBlock);
  kept_max = take(kept_queries > 0, kept_rows * all_blocks);
  log_sum = take(received != nullptr && merged == nullptr, all_rows);
  if (float* const asked = step->log_sums == nullptr ? nullptr : step->log_sums[index]; asked != nullptr)
    log_sum = asked;
  clusters = take(merged != nullptr, merged == nullptr ? 0 : query_blocks * cluster_floats());
  shadow = reinterpret_cast<std::byte*>(
      take(tokens->draft_rows != nullptr, static_cast<std::size_t>(tokens->count - 1) *
                                              (key_tile_bytes(*cache) + value_tile_bytes(*cache)) / sizeof(float)));
  rotated_keys = take(rotate_units > 0, keys / sizeof(float));
}

namespace {

// Visits every array of UnitMemory with its size in floats.
template <typename Visit>
void each_array(UnitMemory& m, const AttentionShape& shape, const Visit& visit) {
  const std::size_t rows = std::max(kRows, shape.group()) + std::size_t{4};
  const std::size_t head = shape.head_dim, value = round_up(shape.value_dim, kTile);
  visit(m.query, rows * head);
  visit(m.sink_query, rows * head);
  visit(m.query_codes, rows * head / 2);
  visit(m.sink_query_codes, rows * head / 2);
  visit(m.query_steps, rows * head / 32);
  visit(m.sink_query_steps, rows * head / 32);
  visit(m.score, rows * kBlock);
  visit(m.sink_score, rows * kBlock);
  visit(m.patched_score, rows * kBlock);
  visit(m.value, rows * value);
  visit(m.max, rows);
  visit(m.correction, rows);
  visit(m.sum, rows * kTile);
  visit(m.key_tiles, head * kBlock);
  visit(m.rope_tiles, static_cast<std::size_t>(shape.rope_dims) * kBlock);
  visit(m.value_rows, value * kBlock);
  visit(m.column, kSplit);
  visit(m.row, std::max(head, value));
}

}  // namespace

std::size_t UnitMemory::floats(const AttentionShape& shape) {
  UnitMemory unused;
  std::size_t sum = 0;
  each_array(unused, shape, [&](auto*&, std::size_t floats) { sum += round_up(floats, kTile); });
  return sum;
}

void UnitMemory::cut(const AttentionShape& shape, float* memory) {
  each_array(*this, shape, [&](auto*& array, std::size_t floats) {
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(memory);
    memory += round_up(floats, kTile);
  });
}

}  // namespace palimpsest
