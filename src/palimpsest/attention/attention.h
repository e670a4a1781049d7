// One layer's attention in one step: insert the new tokens' keys and values, attend, hand out weights if asked.
//
// Two implementations of one contract:
//   reference  double precision, ten lines, the oracle                         (reference.h)
//   cpu        Highway SIMD, threads, online softmax over tiles of 16 slots    (cpu.h)
// The portable path (stock ggml operators, model/portable.h) is tested against both.
#pragma once

#include <cstdint>

#include "palimpsest/attention/rope.h"
#include "palimpsest/cache/view.h"

namespace palimpsest {

// Rows of a ggml-like activation: token t, head h at data + t * token_stride + h * head_stride (in floats).
template <typename T>
struct Heads {
  T* data = nullptr;
  std::int64_t token_stride = 0, head_stride = 0;
  T* at(int token, int head) const { return data + token * token_stride + head * head_stride; }
};

// How keys get their rotation.
//   kAtWrite  stored rotated at their own position (`original` positions; a sinks + window cache too: see `sink_row`)
//   kLate     stored un-rotated, rotated at their rank while they are read (`cache` positions of any policy)
//   kNever    no rotary positions
enum class Rotation { kNever, kAtWrite, kLate };

// The new tokens of one sequence in this step: the same for every layer, made once per step. Their slots are the
// `fresh` slots of each head's SlotsView (already counted as live there).
struct StepTokens {
  int first = 0;  // index of the first of them among the step's tokens
  int count = 0;
  const std::int32_t* when = nullptr;  // [count] position minus the slot table's base
  // Rotation. cos_sin rows are RopeFrequencies::row: [2 * pairs] floats a token.
  const float* query_row = nullptr;  // [count][2*pairs] at the query's position (kAtWrite) or rank (kLate)
  const float* key_row = nullptr;    // [count][2*pairs] at the key's position; used by kAtWrite
  const float* rank_row = nullptr;   // [max rank + 1][2*pairs]; used by kLate
  // Two-query form for sinks + window with `cache` positions and kAtWrite: keys keep the rotation they were written
  // with; tokens older than `sink_end` are met by a query rotated at its rank (sink_row), all others by the query at
  // its position. nullptr: one query.
  const float* sink_row = nullptr;  // [count][2*pairs]
  // Visible to query i: when <= when[i] and (when > when[i] - window or when < sink_end).
  std::int32_t window = INT32_MAX;    // INT32_MAX: all
  std::int32_t sink_end = INT32_MIN;  // `when` of the first token that is not a sink
};

struct AttentionShape {
  int query_heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  float scale = 0;  // usually 1/sqrt(head_dim)
  RopeKind rope = RopeKind::kNone;
  int rope_dims = 0;
  Rotation rotation = Rotation::kNever;
  int group() const { return query_heads / kv_heads; }
};

// All that one layer's operator works on. q, k, v are un-rotated.
struct AttentionStep {
  AttentionShape shape;
  int layer = 0;
  const LayerView* cache = nullptr;    // [sequences]
  const StepTokens* tokens = nullptr;  // [sequences]
  int sequences = 0;
  Heads<const float> q, k, v;
  Heads<float> out;  // [tokens][query_heads][value_dim]
  // Weights received, if wanted: [sequences][kv_heads] -> [slots] floats, mean over the group's query heads, summed
  // over the step's last `weights_queries` queries. Dead and invisible slots get 0. nullptr: not wanted.
  float* const* weights = nullptr;
  int weights_queries = INT32_MAX;
};

}  // namespace palimpsest
