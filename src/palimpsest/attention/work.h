// How the fast path cuts one layer into work units for threads, and the memory that they share. Internal.
//
// A head (one KV head of one sequence) has rows: its new tokens times its query group. Its slots are processed in
// blocks of 64, four tiles. Four kinds of units, in the order in which they are handed out:
//
//   insert   a range of a head's tiles         only if several units read its tokens; else the reading unit inserts
//                                              them. Ranges are of slots: a tile is written by one unit
//   rotate   512 slots of a head               writes their rotated keys into a copy (Rotation::kMaterialized)
//   attend   one block of queries x one split  a split is 512 slots (few queries), or all of them
//   weights  512 slots of a head               column sums of the weights, if `attend` did not keep them
//
// The cuts depend only on a head's counts (HeadCounts), so equal layers share one plan (HeadPlan); HeadStep adds the
// layer's own pointers.
//
// In a decode step a thread takes a head with all its splits, except for the last few heads (cpu.cpp). A unit's result
// depends neither on the number of threads nor on which thread runs it, so neither do the results of a step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "palimpsest/attention/attention.h"

namespace palimpsest {

inline constexpr int kBlock = 4 * kTile;   // slots that a unit processes at once, for all rows
inline constexpr int kSplit = 8 * kBlock;  // slots of a unit when a head has few queries
inline constexpr int kRows = 64;           // max rows of a block of queries (or one query's group, if that is more)
inline constexpr int kInsertTokens = 64;   // tokens of an insert unit, if slots are contiguous

static_assert(kDraftRows <= kRows);

// What the cuts of a head depend on besides the step's shape.
struct HeadCounts {
  int slots, tokens, weights_queries, weight_rows;
  int merged_entries;  // MergedView::max_entries(); -1: no merged tokens
  bool bias;           // SlotsView::bias
  bool received, sums;
  bool drafts;
  bool patched;       // SequenceTokens::draft_rows
  bool in_order;      // ... without SlotsView::patches
  bool materialized;  // keys are rotated into a copy
  bool operator==(const HeadCounts&) const = default;
};
HeadCounts counts_of(const LayerStep& step, int sequence, int kv_head);

struct HeadPlan {
  int sequence, kv_head;
  int index;           // sequence * kv_heads + kv_head
  bool whole;          // one thread takes all its attend units
  bool in_order;       // ... with the head's own patches of drafts, found on the way (attend_in_order)
  int order;           // index among the heads that are not whole
  int block_queries;   // queries of a block
  int query_blocks;    // 1: each unit inserts the tokens of its own slots
  int splits;          // more than 1 only if query_blocks == 1
  int insert_units;    // 0 if query_blocks == 1
  int rotate_units;    // 0 unless keys are rotated into a copy
  int weights_units;   // 0 if weights are kept or not requested
  int kept_queries;    // this many of the last queries keep their weights
  std::size_t offset;  // of its arrays in the shared memory; undefined if whole

  int attend_units() const { return query_blocks * splits; }
};
HeadPlan plan_head(const LayerStep& step, int sequence, int kv_head);

struct KeyKernels;  // attention/kernels.h
struct ValueKernels;
const KeyKernels& key_kernels_of(CacheType type);
const ValueKernels& value_kernels_of(CacheType type);

// One head's part of a layer's part.
struct HeadStep : HeadPlan {
  const LayerStep* step;
  const KeyKernels* keys;
  const ValueKernels* values;
  const LayerView* cache;
  const SequenceTokens* tokens;
  const HeadPages* pages;
  std::int32_t window;
  bool all_visible;          // one query, every slot holds a token, no mask: relative positions need not be read
  const MergedView* merged;  // tokens merged into slots of others; nullptr: none
  const float* rank_tiles;   // see LayerStep; nullptr: built where they are read
  float* received;           // LayerStep::weights of this head; nullptr: not requested
  float* sums;               // LayerStep::sums of this head; nullptr: not requested
  float* partial;            // [splits][rows][row_floats], if splits > 1: weighted values, max score, sum
  float* kept;               // [blocks][kept rows][kBlock]: 2^(score - running max)
  float* kept_max;           // [kept rows][blocks]: that running max
  float* log_sum;   // [rows]: base-2 log-sum-exp of each row's scores, if weights or LayerStep::log_sums are requested
  float* clusters;  // [query_blocks][cluster_floats], if merged
  std::byte* shadow;    // [tokens - 1][key tile, value tile]: see shadow_key; nullptr: all tokens have slots
  float* rotated_keys;  // [slots / 16][head_dim][16] in the keys' format, if rotate_units > 0
  std::size_t floats;   // of these arrays
  std::span<const SlotPatch> patches;  // as far as they are known
  // The queries that the next attend units and reduce_head() are for: all, but for heads in order.
  int first_query, queries;

  const SlotsView& slots() const { return *pages->slots; }
  // The tile of a patched slot as query `query`, whose token it holds, sees it: with the tokens that earlier queries
  // have there.
  std::byte* shadow_key(int query) const {
    return shadow + static_cast<std::size_t>(query - 1) * (key_tile_bytes(*cache) + value_tile_bytes(*cache));
  }
  std::byte* shadow_value(int query) const { return shadow_key(query) + key_tile_bytes(*cache); }
  int blocks() const { return (slots().slots + kBlock - 1) / kBlock; }
  int group() const { return step->shape.group(); }
  int rows() const { return tokens->count * group(); }
  bool keeps_all() const { return kept_queries == tokens->count; }
  int kept_now() const { return keeps_all() ? queries : kept_queries; }            // of the queries
  int late_queries() const { return std::min(tokens->weights_queries, queries); }  // that `received` covers
  // The rows of `received`: their number, and the queries of each.
  int weight_rows() const {
    if (tokens->drafts) return queries;
    return tokens->weights_rows.empty() ? 1 : static_cast<int>(tokens->weights_rows.size());
  }
  int row_queries(int row) const {
    if (tokens->drafts) return 1;
    return tokens->weights_rows.empty() ? late_queries() : tokens->weights_rows[static_cast<std::size_t>(row)];
  }
  // With merged tokens: rows that a unit processes at a time, with the scores of all slots; and the weights that it
  // sums for each slot and entry, of each row of weights and, separately, of the earlier queries.
  int cluster_rows() const { return std::max(1, 4 / group()) * group(); }
  int weight_sums() const { return weight_rows() + (sums == nullptr ? 0 : 1); }
  bool has_bias() const { return step->shape.alibi != nullptr || slots().bias != nullptr; }
  std::size_t cluster_weights() const { return static_cast<std::size_t>(blocks()) * kBlock + merged->max_entries(); }
  std::size_t cluster_floats() const {
    const std::size_t slots = static_cast<std::size_t>(blocks()) * kBlock;
    return cluster_rows() * ((has_bias() ? 2 : 1) * slots + cluster_weights()) +
           (received == nullptr ? 0 : weight_sums() * cluster_weights());
  }
  // Sets the array pointers into `memory` (nullptr: only counts `floats`).
  void set_arena(float* memory);
};

inline std::size_t round_up(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}
inline std::size_t row_floats(const AttentionShape& shape) {
  return round_up(static_cast<std::size_t>(shape.value_dim) + 2, kTile);
}

// The work of one head, its arrays not yet set; with `plan`, or with a plan of its own.
HeadStep head_step(const LayerStep& step, const HeadPlan& plan);
inline HeadStep head_step(const LayerStep& step, int sequence, int kv_head) {
  return head_step(step, plan_head(step, sequence, kv_head));
}

// The slots of an insert unit, whole tiles. The units' ranges are disjoint and cover all new tokens.
struct SlotRange {
  int begin, end;
};
SlotRange insert_range(const HeadStep& work, int unit);

// Records a row that the cache type cannot hold (LayerStep::misfits).
void report_misfit(const HeadStep& work, int token, bool value, const float* row, int count);

// Scratch memory of one thread.
struct UnitMemory {
  float *query, *sink_query;  // [rows][head_dim] rotated, times scale and log2(e), interleaved by four
  // The same as 16-bit integers, times a step per 32 dimensions, for q8_0 (integers-inl.h): codes [rows / 4][head_dim /
  // 2][4][2], steps [rows / 4][head_dim / 32][4]. Of 4 bits and fewer: nibbles-inl.h.
  std::int16_t *query_codes, *sink_query_codes;
  float *query_steps, *sink_query_steps;
  float *score, *sink_score;  // [rows][kBlock]
  float* patched_score;       // likewise, of one query's patched block
  float* value;               // [rows][value_dim padded] accumulators
  float* max;                 // [rows]
  float* correction;          // [rows]
  float* sum;                 // [rows][kTile] lane sums
  float* key_tiles;           // [4][head_dim][kTile] f32
  float* rope_tiles;          // [4][rope_dims][kTile] cosines and sines of ranks
  float* value_rows;          // [kBlock][value_dim padded] f32
  float* column;              // [kSplit] summed weights of slots
  float* row;                 // one key or value

  // Floats needed; sets the pointers into an array of that size.
  static std::size_t floats(const AttentionShape& shape);
  void cut(const AttentionShape& shape, float* memory);
};

// Kernels, compiled for several instruction sets and chosen at run time (kernels.h).
void insert_tokens(const HeadStep& work, int unit, const UnitMemory& memory);
void rotate_keys(const HeadStep& work, int unit, const UnitMemory& memory);
void attend_unit(const HeadStep& work, int query_block, int split, const UnitMemory& memory);
void reduce_head(const HeadStep& work);  // after the head's last attend unit
void weights_unit(const HeadStep& work, int unit, const UnitMemory& memory);

}  // namespace palimpsest
