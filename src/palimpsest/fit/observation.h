// What the model does while it reads one text, and reads it again: the data that scorers and profiles are fitted to.
//
//   the text, in chunks of 16     keys, values and queries of its tokens; attention weights, summed per chunk
//   the text again, in parts      max weight of each token: KVzip's score (arXiv 2505.23416)
//
//   attention sums are kept at some times only, for policy `temporal`:
//
//   0        n - 48     n                                T
//   |----------|--------|--------------------------------|
//     `before` ^  `sum` ^                          `end` ^      attention of queries n .. T - 1 = end - sum
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "palimpsest/engine/sequence/query_centres.h"
#include "palimpsest/graph/decoder.h"

namespace palimpsest {

inline constexpr int kFitChunk = 16, kFitStep = 128, kFitLately = 48;  // tokens; multiples of kFitChunk

// Arrays are by KV head of all layers, then by token, with a row of `tokens` entries per head.
struct Observation {
  struct Sums {
    int tokens = 0;                       // n: read so far
    std::vector<float> sum, before = {};  // [heads][n]: attention from all queries; from those before the last 48
  };
  int heads = 0, tokens = 0, key_width = 0, value_width = 0;
  std::vector<float> keys, values;  // [heads][tokens][width], un-rotated
  std::vector<float> repeated;      // [heads][tokens] max weight while the text is repeated
  std::vector<Sums> times;          // after every kFitStep tokens of the first three quarters
  std::vector<float> end;           // [heads][tokens] attention from the whole text

  std::size_t row(int head, int token = 0) const {
    return static_cast<std::size_t>(head) * static_cast<std::size_t>(tokens) + static_cast<std::size_t>(token);
  }
};

// Reads the text with the full cache, and adds its queries to `queries`. `instruction`: before each repeated part
// (engine/sequence/repeat.h). `progress` counts the tokens of both readings; returning false ends both, and the
// observation is incomplete then. Throws Error unless the model runs on the CPU's fast path and all its layers have KV
// heads of one shape.
Observation observe(Decoder& decoder, std::span<const TokenId> text, std::span<const TokenId> instruction,
                    QuerySums& queries, const std::function<bool(long long done, long long total)>& progress = {});

// Throws Error with the reason if observe() would.
void check_observable(Decoder& decoder);

}  // namespace palimpsest
