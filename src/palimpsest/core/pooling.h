// How the hidden states of a text become one vector (an embedding).
#pragma once

namespace palimpsest {

enum class Pooling {
  kNone,  // none: no embeddings
  kMean,  // the mean of all tokens
  kLast   // of the last token
};

}  // namespace palimpsest
