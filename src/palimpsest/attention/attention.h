// One layer's attention in one step: insert the new tokens' keys and values, attend, return weights if requested.
//
// Two implementations of one contract:
//   reference  double precision, plain loops, the oracle                       (reference.h)
//   cpu        Highway SIMD, threads, online softmax over tiles of 16 slots    (cpu.h)
// The portable path (stock ggml operators, graph/device/portable.h) is tested against both.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "palimpsest/attention/misfit.h"
#include "palimpsest/cache/view.h"
#include "palimpsest/core/attention_rule.h"
#include "palimpsest/core/rope.h"

namespace palimpsest {

// Rows of a ggml-like activation: token t, head h at data + t * token_stride + h * head_stride (in floats).
template <typename T>
struct Heads {
  T* data = nullptr;
  std::int64_t token_stride = 0, head_stride = 0;
  T* at(int token, int head) const { return data + token * token_stride + head * head_stride; }
};

// Whether a token is among the last `window` positions at `now`; INT32_MAX: always.
inline bool within(std::int64_t relative, std::int64_t now, std::int32_t window) {
  return window == INT32_MAX || relative > now - window;
}

// What a sequence requests of a step's attention, in all layers.
struct AttentionRequest {
  int weights_queries = INT32_MAX;  // LayerStep::weights covers this many of the last queries
  // The queries of each row of weights, oldest first, weights_queries in all; rows are `weights_stride` floats apart.
  // Empty: one row. With more than one: no kMaxOverAll.
  std::span<const int> weights_rows = {};
  std::ptrdiff_t weights_stride = 0;
  WeightReduction weight_reduction = WeightReduction::kMeanOverGroup;  // over the query group and those queries
  // The tokens after the first are drafts: query i gets the result, to the bit, that it would get as the only query of
  // a step. At most max_draft_tokens(). Each query has its own row of weights; no sums. Fast path only. With other
  // sequences in the step this holds only if all weight matrices are in panels.
  bool drafts = false;
  // Not nullptr: only the first token has its slot (Cache::preview). Each later one has a SlotPatch, in
  // SlotsView::patches, or found by LayerStep::find_patches. Pages keep what is in the patched slots; the keys
  // (rotated) and values of those tokens, as they are stored, are written here: [heads of the model] -> [count -
  // 1][head_dim + value_dim].
  float* const* draft_rows = nullptr;
};

// The new tokens of one sequence in this step, and how they attend: the same for every layer, built once per step from
// its SequenceStep (graph/sequence_step.h). Their slots are SlotsView::inserted of each head; SlotsView::occupied
// counts them already.
//
// The rule is the sequence's own, like its cache; rotation is kNever if the model has no rotary positions. With
// two_query, sinks are scored with the query rotated at `sink_rank`, all other tokens with the query at its own
// position: with kOnWrite, sinks + window gets `cache` positions without rotating stored keys; with kOnRead a masked
// window is exact. Visible to query i: relative <= relative[i] and (within(relative, relative[i], window) or relative <
// sink_end).
struct SequenceTokens : AttentionRule, AttentionRequest {
  int first = 0;  // index of the first one among the step's tokens
  int count = 0;
  const std::int32_t* relative = nullptr;  // [count] position minus the slot table's base
  Position position = 0;                   // of the first one
  // Rows of cosines and sines are RopeFrequencies::row: [2 * pairs] floats.
  const float* key_row = nullptr;       // [count][2*pairs] at the new tokens' positions: kOnWrite, queries and keys.
                                        // nullptr: each head uses the row of its own rank
  const float* rank_row = nullptr;      // row r: rotation of rank r; a row for each rank of a token or query
  const float* distance_row = nullptr;  // row d: rotation by d positions, for merged tokens with distances
  std::int32_t sink_end = INT32_MIN;    // relative position of the first token that is not a sink
};

// The role of the new tokens: each attends as the only query of a step (decode, drafts), or together (a prompt's
// chunk). Kernels and the handling of weights are chosen by it, never by the number of tokens.
inline bool each_alone(const SequenceTokens& t) {
  return t.count == 1 || t.drafts;
}

// Rank of query i: the new tokens have a head's highest ranks, but for those of an edit. Of drafts without
// slots: as if none of their victims were dropped.
inline int query_rank(const SequenceTokens& t, const SlotsView& slots, int i) {
  if (slots.rank_is_position) return static_cast<int>(t.position) + i;
  return slots.occupied - slots.later - (t.draft_rows != nullptr ? 1 : t.count) + i;
}
// Rank at which query i scores the sinks: with a window, its rank if tokens outside the window had been evicted.
inline int sink_rank(const SequenceTokens& t, const SlotsView& slots, std::int32_t window, int i) {
  if (window == INT32_MAX) return query_rank(t, slots, i);
  return static_cast<int>(std::min<Position>(t.position + i, Position{t.sinks} + window - 1));
}

struct AttentionShape {
  int query_heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  float scale = 0;  // usually 1/sqrt(head_dim)
  RopeKind rope = RopeKind::kNone;
  int rope_dims = 0;
  const float* alibi = nullptr;  // [query_heads] score -= slope * distance (arXiv 2108.12409); nullptr: no bias
  // Scaled scores become soft_cap * tanh(score / soft_cap), before ALiBi (Gemma 2, arXiv 2408.00118); 0: no cap.
  float soft_cap = 0;
  // [query_heads] learned attention sinks (gpt-oss, arXiv 2508.10925), not to be confused with sink tokens: the
  // softmax's denominator also has exp(sink_logits[head]), which has no value, so the weights of a query that sees a
  // slot sum to less than 1. In natural-log units, compared with scores after scale, cap and biases; finite, or
  // -infinity: no sink. nullptr: none.
  const float* sink_logits = nullptr;
  // [head_dim] Rotated queries are multiplied by it, element by element: the product of the weights of the norms of
  // queries and keys where these come after the rotation (Hunyuan). Scores then depend on positions, not only on
  // distances: no two_query. nullptr: none.
  const float* query_factor = nullptr;
  int group() const { return query_heads / kv_heads; }
};

// The cosines and sines for new token i; nullptr: it is not rotated.
inline const float* query_row(const AttentionShape& shape, const SequenceTokens& t, const SlotsView& slots, int i) {
  if (t.rotation == Rotation::kNever || shape.rope == RopeKind::kNone) return nullptr;
  const bool by_rank = t.rotation != Rotation::kOnWrite || t.key_row == nullptr;
  return by_rank ? t.rank_row + static_cast<std::int64_t>(query_rank(t, slots, i)) * shape.rope_dims
                 : t.key_row + static_cast<std::int64_t>(i) * shape.rope_dims;
}

// One layer's part of a step: inputs and outputs of its attention. q, k, v are not rotated.
struct LayerStep {
  AttentionShape shape;
  int layer = 0, first_head = 0;           // the flat index of its first KV head
  int kv_layer = 0;                        // the layer whose cache it reads; its own, but where layers share a cache
  const LayerView* cache = nullptr;        // [sequences]
  const SequenceTokens* tokens = nullptr;  // [sequences]
  int sequences = 0;
  // The layer's own window, in positions: query i sees a token only if within(relative, relative[i], local_of(i)), in
  // addition to SequenceTokens' rules. It hides sinks too. `chunked`: the window begins at a multiple of `local`.
  std::int32_t local = INT32_MAX;
  bool chunked = false;
  Heads<const float> q, k, v;
  Heads<float> out;  // [tokens][query_heads][value_dim]
  // [sequences] -> the output of make_rank_tiles, for a slot table that all heads share. If it or an entry is nullptr,
  // each head builds its own. For kOnRead and kMaterialized.
  const float* const* rank_tiles = nullptr;
  // Attention weights per slot: [sequences][kv_heads] -> [slots] floats, reduced over the group's query heads and the
  // last SequenceTokens::weights_queries queries by SequenceTokens::weight_reduction. Empty and invisible slots get 0.
  // With merged tokens: [slots + MergedView::entries()]. Merged tokens and `sums` need kMeanOverGroup. In rows:
  // SequenceTokens::weights_rows. nullptr: not requested.
  float* const* weights = nullptr;
  // The same, by kMeanOverGroup, over all of the step's queries; only together with `weights`.
  float* const* sums = nullptr;
  // Called once for every head with weights, by the thread that completed them (they are still in its CPU cache), in
  // any order, possibly by several threads at a time.
  void (*on_weights)(void* context, int layer, int sequence, int kv_head) = nullptr;
  // Returns the patches of all queries up to `query`, for drafts without slots in heads without SlotsView::patches.
  // Called before each query after the first, in order, when the weights of the one before (if requested) are written.
  std::span<const SlotPatch> (*find_patches)(void* context, const LayerStep& step, int sequence, int kv_head,
                                             int query) = nullptr;
  void* context = nullptr;
  // [sequences][kv_heads] -> [tokens][group]: the base-2 logarithm of each row's softmax denominator. An entry may be
  // nullptr; nullptr: not requested. Not with merged tokens.
  float* const* log_sums = nullptr;
  Misfits* misfits = nullptr;  // rows that the cache's type cannot hold; nullptr: not recorded

  std::int32_t local_of(const SequenceTokens& t, int query) const {
    return chunked ? static_cast<std::int32_t>((t.position + query) % local) + 1 : local;
  }
  std::int32_t window(int sequence, int kv_head) const {
    const SequenceTokens& t = tokens[sequence];
    return t.head_window.empty() ? t.window : t.head_window[static_cast<std::size_t>(first_head + kv_head)];
  }
};

}  // namespace palimpsest
