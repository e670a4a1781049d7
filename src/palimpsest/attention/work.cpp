#include "palimpsest/attention/work.h"

#include <algorithm>
#include <cassert>

namespace palimpsest {

HeadWork head_work(const AttentionStep& step, int sequence, int kv_head) {
  HeadWork w{};
  w.step = &step;
  w.cache = &step.cache[sequence];
  w.tokens = &step.tokens[sequence];
  w.pages = &w.cache->head[kv_head];
  w.sequence = sequence;
  w.kv_head = kv_head;
  w.index = sequence * step.shape.kv_heads + kv_head;
  w.window = step.window(sequence, kv_head);
  const bool near = step.local == INT32_MAX || w.tokens->position < step.local;  // the first token is
  w.all_visible = w.tokens->count == 1 && w.window == INT32_MAX && near && w.slots().live == w.slots().slots;
  w.rank_tiles = step.rank_tiles == nullptr ? nullptr : step.rank_tiles[sequence];
  w.received = step.weights == nullptr ? nullptr : step.weights[w.index];
  w.sums = step.sums == nullptr ? nullptr : step.sums[w.index];
  assert(w.sums == nullptr || (w.received != nullptr && w.tokens->received_as == Received::kMean));

  const int slots = w.slots().slots, count = w.tokens->count, stretches = (slots + kSplit - 1) / kSplit;
  if (count == 0) {
    w.weights_units = w.received == nullptr ? 0 : stretches;  // all zero
    return w;
  }
  w.block_queries = std::max(1, kRows / w.group());
  w.query_blocks = (count + w.block_queries - 1) / w.block_queries;
  w.merged = w.slots().merged;
  w.splits = w.query_blocks == 1 && w.merged == nullptr ? std::max(1, stretches) : 1;
  w.insert_units = w.query_blocks == 1 ? 0 : (count + kInsertTokens - 1) / kInsertTokens;
  assert(step.shape.rotation != Rotation::kRecompute || w.cache->type != CacheType::kQ8_0);
  if (step.shape.rotation == Rotation::kRecompute && step.shape.rope != RopeKind::kNone) w.rotate_units = stretches;
  const bool keep = w.query_blocks == 1 && w.rows() <= kKeptRows && w.tokens->weights_queries > 0;
  if (w.merged != nullptr) {
    assert(!at_rank(step.shape.rotation) && !w.tokens->two_query && w.tokens->received_as == Received::kMean);
    w.place(nullptr);
    return w;
  }
  if (w.received != nullptr && keep) w.kept_queries = w.sums != nullptr ? count : w.late_queries();
  if (w.received != nullptr && !keep) w.weights_units = stretches;
  w.place(nullptr);
  return w;
}

void HeadWork::place(float* memory) {
  floats = 0;
  const auto take = [&](bool wanted, std::size_t count) {
    float* const taken = wanted && memory != nullptr ? memory + floats : nullptr;
    if (wanted) floats += round_up(count, kTile);
    return taken;
  };
  if (tokens->count == 0) return;
  const std::size_t all_rows = rows(), kept_rows = static_cast<std::size_t>(kept_queries) * group();
  const std::size_t all_blocks = blocks(), keys = static_cast<std::size_t>(slots().slots) * step->shape.head_dim;
  partial = take(splits > 1, splits * all_rows * row_floats(step->shape));
  kept = take(kept_queries > 0, kept_rows * all_blocks * kBlock);
  kept_max = take(kept_queries > 0, kept_rows * all_blocks);
  log_sum = take(received != nullptr && merged == nullptr, all_rows);
  classes = take(merged != nullptr, merged == nullptr ? 0 : query_blocks * class_floats());
  turned = take(rotate_units > 0, keys * bytes_per_element(cache->type) / sizeof(float));
}

namespace {

// Visits every array of UnitMemory with its size.
template <typename Visit>
void each_array(UnitMemory& m, const AttentionShape& shape, const Visit& visit) {
  const std::size_t rows = std::max(kRows, shape.group()) + std::size_t{4};
  const std::size_t head = shape.head_dim, value = round_up(shape.value_dim, kTile);
  visit(m.query, rows * head);
  visit(m.sink_query, rows * head);
  visit(m.score, rows * kBlock);
  visit(m.sink_score, rows * kBlock);
  visit(m.value, rows * value);
  visit(m.max, rows);
  visit(m.correction, rows);
  visit(m.sum, rows * kTile);
  visit(m.key_tiles, head * kBlock);
  visit(m.turns, static_cast<std::size_t>(shape.rope_dims) * kBlock);
  visit(m.value_rows, value * kBlock);
  visit(m.column, kSplit);
  visit(m.row, std::max(head, value));
}

}  // namespace

std::size_t UnitMemory::floats(const AttentionShape& shape) {
  UnitMemory unused;
  std::size_t sum = 0;
  each_array(unused, shape, [&](float*&, std::size_t floats) { sum += round_up(floats, kTile); });
  return sum;
}

void UnitMemory::cut(const AttentionShape& shape, float* memory) {
  each_array(*this, shape, [&](float*& array, std::size_t floats) {
    array = memory;
    memory += round_up(floats, kTile);
  });
}

}  // namespace palimpsest
