// Oracle of embeddings.
#pragma once

#include <vector>

#include "palimpsest/core/pooling.h"
#include "palimpsest/graph/decoder.h"

namespace palimpsest::testing {

// All hidden states of a text in one step, pooled in double precision, of Euclidean length 1: [width].
std::vector<double> plain_embedding(Decoder& decoder, const std::vector<TokenId>& tokens, Pooling pooling);

}  // namespace palimpsest::testing
