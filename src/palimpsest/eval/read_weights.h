// The attention weights of a text, head by head: what profiles of heads are made of.
#pragma once

#include <functional>
#include <span>

#include "palimpsest/graph/decoder.h"

namespace palimpsest {

// Weights of one query, reduced over a KV head's group. All in slot order.
struct HeadWeights {
  int head = 0;  // flat index over all layers
  PositionView position;
  std::span<const float> weight;
  Position next = 0;  // tokens read, the query's own included
};

// Reads the text with the full cache, token by token, and reports each KV head's weights for the queries from `first`
// on. Returns the number of tokens read: fewer than the text's if `progress` returned false. Throws Error unless the
// model runs on the CPU's fast path.
long long read_weights(Decoder& decoder, std::span<const TokenId> text, long long first, WeightReduction reduction,
                       const std::function<void(const HeadWeights&)>& receive,
                       const std::function<bool(long long done, long long total)>& progress = {});

}  // namespace palimpsest
