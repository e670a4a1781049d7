// How a sequence's cache is attended to: plain data that the method plan makes (evict/method_plan.h) and the graph and
// its kernels read.
#pragma once

#include <cstdint>
#include <span>

namespace palimpsest {

// How a model knows where its tokens are: what `cache` positions can mean for it.
enum class PositionKind {
  kRotary,   // queries and keys rotate
  kAlibi,    // scores are biased by distance
  kLearned,  // a vector for each position is added to the embedding: cannot be changed without computing anew
  kNone      // not at all
};

// How keys get their rotation.
//   kOnWrite    stored rotated at their own position (`original` positions; a sinks + window cache too: `two_query`)
//   kOnRead       stored un-rotated, rotated at their rank while they are read (`cache` positions of any policy); from
//               pages with `rotated_half` as K*cos + rotate_half(K)*sin
//   kMaterialized  stored un-rotated; in each step all of them are rotated into a copy, which is read: a baseline
//   kNever      no rotary positions
enum class Rotation { kNever, kOnWrite, kOnRead, kMaterialized };
// Keys are stored un-rotated and rotate by their ranks.
inline constexpr bool unrotated_keys(Rotation r) {
  return r == Rotation::kOnRead || r == Rotation::kMaterialized;
}

// Derived from a sequence's method, constant over its life.
struct AttentionRule {
  Rotation rotation = Rotation::kOnWrite;  // kNever for families without rotary positions
  bool two_query = false;                  // cache positions by rotating the query twice (sinks + window)
  bool rotated_at_rank = false;            // kOnWrite: new keys and queries rotate by their rank, not their position
  bool rank_distance = false;              // ALiBi: cache positions; the cache tracks ranks
  int sinks = 0;                           // used by two_query and window
  int window = 0;                          // tokens visible to a query besides the sinks, itself included; 0: all
  std::span<const std::int32_t> head_window = {};  // [heads] instead of `window`; INT32_MAX: all
};

}  // namespace palimpsest
