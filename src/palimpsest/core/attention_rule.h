// How a sequence attends to its cache: plain data, made by the method plan (evict/method_plan.h), read by the graph and
// its kernels.
#pragma once

#include <cstdint>
#include <span>

namespace palimpsest {

// How a model encodes positions: decides what `cache` positions mean for it.
enum class PositionKind {
  kRotary,   // queries and keys rotate
  kAlibi,    // scores are biased by distance
  kLearned,  // a vector for each position is added to the embedding: cannot be changed without recomputation
  kNone      // no position encoding
};

// When keys are rotated.
//   kOnWrite       stored rotated, at their position (`original` positions; also sinks + window: `two_query`)
//   kOnRead        stored un-rotated, rotated by rank when read (`cache` positions of any policy); with `rotated_half`
//                  as K*cos + rotate_half(K)*sin
//   kMaterialized  stored un-rotated; each step rotates all of them into a copy and reads that: a baseline
//   kNever         no rotary positions
enum class Rotation { kNever, kOnWrite, kOnRead, kMaterialized };
// Keys are stored un-rotated and rotated by rank.
inline constexpr bool unrotated_keys(Rotation r) {
  return r == Rotation::kOnRead || r == Rotation::kMaterialized;
}

// Max tokens of a step with drafts: their rows, one per query head of a group, are one block of attention.
inline constexpr int kDraftRows = 64;
inline constexpr int max_draft_tokens(int group) {
  return group < kDraftRows ? kDraftRows / group : 1;
}

// Derived from a sequence's method, constant over its lifetime.
struct AttentionRule {
  Rotation rotation = Rotation::kOnWrite;  // kNever for families without rotary positions
  bool two_query = false;                  // cache positions by rotating the query twice (sinks + window)
  // kOnWrite: new keys and queries are rotated by rank, not by position.
  bool rotated_at_rank = false;
  // ALiBi distances are between ranks (`cache` positions; needs slot tables with ranks), not between positions.
  bool rank_distance = false;
  int sinks = 0;                    // used by two_query and window
  std::int32_t window = INT32_MAX;  // tokens visible to a query besides the sinks, its own included; INT32_MAX: all
  std::span<const std::int32_t> head_window = {};  // [heads] instead of `window`

  bool has_window() const { return window != INT32_MAX; }
};

}  // namespace palimpsest
