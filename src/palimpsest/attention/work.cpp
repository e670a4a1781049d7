#include "palimpsest/attention/work.h"

#include <algorithm>

namespace palimpsest {

HeadWork head_work(const AttentionStep& step, int sequence, int kv_head, float* memory) {
  HeadWork w{};
  w.step = &step;
  w.cache = &step.cache[sequence];
  w.tokens = &step.tokens[sequence];
  w.pages = &w.cache->head[kv_head];
  w.sequence = sequence;
  w.kv_head = kv_head;
  w.window = step.window(sequence, kv_head);
  w.index = sequence * step.shape.kv_heads + kv_head;
  w.received = step.weights == nullptr ? nullptr : step.weights[w.index];

  const int slots = w.slots().slots, count = w.tokens->count;
  if (count == 0) {
    w.weights_units = w.received == nullptr ? 0 : (slots + kSplit - 1) / kSplit;  // all zero
    return w;
  }
  w.block_queries = std::max(1, kRows / w.group());
  w.query_blocks = (count + w.block_queries - 1) / w.block_queries;
  w.splits = w.query_blocks == 1 ? std::max(1, (slots + kSplit - 1) / kSplit) : 1;
  w.insert_units = w.query_blocks == 1 ? 0 : (count + kInsertTokens - 1) / kInsertTokens;
  const bool keep = w.query_blocks == 1 && w.rows() <= kKeptRows && step.weights_queries > 0;
  if (w.received != nullptr && keep) w.kept_queries = std::min(step.weights_queries, count);
  if (w.received != nullptr && !keep) w.weights_units = (slots + kSplit - 1) / kSplit;

  const auto take = [&](bool wanted, std::size_t floats) {
    float* const taken = wanted && memory != nullptr ? memory + w.floats : nullptr;
    if (wanted) w.floats += round_up(floats, kTile);
    return taken;
  };
  const std::size_t rows = w.rows(), kept_rows = static_cast<std::size_t>(w.kept_queries) * w.group();
  const std::size_t blocks = w.blocks();
  w.partial = take(w.splits > 1, w.splits * rows * row_floats(step.shape));
  w.kept = take(w.kept_queries > 0, kept_rows * blocks * kBlock);
  w.kept_max = take(w.kept_queries > 0, kept_rows * blocks);
  w.log_sum = take(w.received != nullptr, rows);
  return w;
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
