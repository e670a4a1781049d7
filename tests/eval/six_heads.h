// A reader of random weights: 3 layers with 2 KV heads, 4 query heads for each.
#pragma once

#include "palimpsest/graph/decoder.h"
#include "palimpsest/model/synthetic/synthetic.h"

namespace palimpsest::testing {

inline constexpr int kSixHeads = 6;

inline Decoder six_heads() {
  return Decoder(Model::from(make_synthetic({.vocabulary = 96,
                                             .width = 64,
                                             .layers = 3,
                                             .feed_forward = 96,
                                             .query_heads = 8,
                                             .kv_heads = 2,
                                             .head_dim = 16})),
                 1);
}

}  // namespace palimpsest::testing
