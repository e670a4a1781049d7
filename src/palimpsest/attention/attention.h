// One layer's attention in one step: insert the new tokens' keys and values, attend, hand out weights if asked.
//
// Two implementations of one contract:
//   reference  double precision, ten lines, the oracle                         (reference.h)
//   cpu        Highway SIMD, threads, online softmax over tiles of 16 slots    (cpu.h)
// The portable path (stock ggml operators, model/portable.h) is tested against both.
#pragma once

#include <algorithm>
#include <cstdint>

#include "palimpsest/attention/misfit.h"
#include "palimpsest/attention/rope.h"
#include "palimpsest/cache/view.h"
#include "palimpsest/core/attention_rule.h"

namespace palimpsest {

// Rows of a ggml-like activation: token t, head h at data + t * token_stride + h * head_stride (in floats).
template <typename T>
struct Heads {
  T* data = nullptr;
  std::int64_t token_stride = 0, head_stride = 0;
  T* at(int token, int head) const { return data + token * token_stride + head * head_stride; }
};

// Whether a token is among the last `window` positions at `now`; INT32_MAX: always.
inline bool within(std::int64_t when, std::int64_t now, std::int32_t window) {
  return window == INT32_MAX || when > now - window;
}

// The new tokens of one sequence in this step: the same for every layer, made once per step. Their slots are the
// `fresh` slots of each head's SlotsView (already counted as live there).
struct StepTokens {
  int first = 0;  // index of the first of them among the step's tokens
  int count = 0;
  const std::int32_t* when = nullptr;  // [count] position minus the slot table's base
  Position position = 0;               // of the first of them
  // Rotation. cos_sin rows are RopeFrequencies::row: [2 * pairs] floats.
  const float* key_row = nullptr;   // [count][2*pairs] at the new tokens' positions: kOnWrite, queries and keys.
                                    // nullptr: each head takes the row of its own rank
  const float* rank_row = nullptr;  // row r: rotation of rank r; as many rows as live tokens, or sinks + window if more
  const float* distance_row = nullptr;  // row d: rotation by d places, for merged tokens with distances
  // Sinks are met by a query at `sink_rank`, all others by the query at its place. So sinks + window keep `cache`
  // positions with keys that keep the rotation they were written with; under kOnRead it makes a masked window exact.
  bool two_query = false;
  // ALiBi: distances are between ranks (`cache` positions; slot tables with ranks), not between positions.
  bool rank_distance = false;
  // Visible to query i: when <= when[i] and (within(when, when[i], window) or when < sink_end).
  std::int32_t window = INT32_MAX;            // INT32_MAX: all
  const std::int32_t* head_window = nullptr;  // [heads], instead of `window`
  std::int32_t sink_end = INT32_MIN;          // `when` of the first token that is not a sink
  int sinks = 0;                              // tokens before it
  int weights_queries = INT32_MAX;            // if weights are wanted: of so many of the last queries
  WeightReduction weight_reduction = WeightReduction::kMeanOverGroup;  // ... and how they become one
};

// What query i of a head is ranked: the new tokens are its youngest.
inline int query_rank(const StepTokens& t, const SlotsView& slots, int i) {
  return slots.occupied - t.count + i;
}
// The same for the query that meets sinks: behind a mask, the rank that it would have if the others had left.
inline int sink_rank(const StepTokens& t, const SlotsView& slots, std::int32_t window, int i) {
  if (window == INT32_MAX) return query_rank(t, slots, i);
  return static_cast<int>(std::min<Position>(t.position + i, Position{t.sinks} + window - 1));
}

struct AttentionShape {
  int query_heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  float scale = 0;  // usually 1/sqrt(head_dim)
  RopeKind rope = RopeKind::kNone;
  int rope_dims = 0;
  Rotation rotation = Rotation::kNever;
  const float* alibi = nullptr;  // [query_heads] score -= slope * distance (arXiv 2108.12409); nullptr: no bias
  // Scaled scores become soft_cap * tanh(score / soft_cap), before ALiBi (Gemma 2, arXiv 2408.00118); 0: they stay.
  float soft_cap = 0;
  int group() const { return query_heads / kv_heads; }
};

// Row of the cosines and sines that new token i rotates by; nullptr: it does not rotate.
inline const float* query_row(const AttentionShape& shape, const StepTokens& t, const SlotsView& slots, int i) {
  if (shape.rotation == Rotation::kNever || shape.rope == RopeKind::kNone) return nullptr;
  const bool by_rank = shape.rotation != Rotation::kOnWrite || t.key_row == nullptr;
  return by_rank ? t.rank_row + static_cast<std::int64_t>(query_rank(t, slots, i)) * shape.rope_dims
                 : t.key_row + static_cast<std::int64_t>(i) * shape.rope_dims;
}

// All that one layer's operator works on. q, k, v are un-rotated.
struct AttentionStep {
  AttentionShape shape;
  int layer = 0, first_head = 0;       // the flat index of its first KV head
  const LayerView* cache = nullptr;    // [sequences]
  const StepTokens* tokens = nullptr;  // [sequences]
  int sequences = 0;
  // The layer's own window: visible to query i is only what is within(when, when[i], local), besides what StepTokens
  // hides; sinks too. Of positions, however keys are rotated.
  std::int32_t local = INT32_MAX;
  Heads<const float> q, k, v;
  Heads<float> out;  // [tokens][query_heads][value_dim]
  // [sequences] -> the rank rows of a slot table that all heads share, as make_rank_tiles leaves them. nullptr, of all
  // or of one: they are made anew for each head. For kOnRead and kRecompute.
  const float* const* rank_tiles = nullptr;
  // Weights received, if wanted: [sequences][kv_heads] -> [slots] floats, over the group's query heads and the last
  // StepTokens::weights_queries queries as StepTokens::weight_reduction says. Dead and invisible slots get 0. Those of
  // merged tokens follow: [slots + MergedView::places()]; with them or with sums, as kMean. nullptr: not wanted.
  float* const* weights = nullptr;
  // The same, as kMean, over all of the step's queries, if wanted beside `weights`.
  float* const* sums = nullptr;
  // Called once for every head with weights, by the thread that has just completed them, in any order, and by several
  // threads at a time: they are still in its cache.
  void (*on_weights)(void* context, int layer, int sequence, int kv_head) = nullptr;
  void* context = nullptr;
  Misfits* misfits = nullptr;  // what did not fit the cache's type; nullptr: not recorded

  std::int32_t window(int sequence, int kv_head) const {
    const StepTokens& t = tokens[sequence];
    return t.head_window == nullptr ? t.window : t.head_window[first_head + kv_head];
  }
};

}  // namespace palimpsest
