// Encoders with random weights and a small WordPiece vocabulary, as files; and BERT in plain loops.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest::testing {

struct TinyEncoder {
  std::string architecture = "bert";  // of `encoder_architectures()` but llama-embed, or a decoder that ranks: qwen3
  int pooling = 1;                    // libllama's number: mean, cls, last, rank; 0: not in the file
  bool head = false;                  // a classification head of one score; of qwen3: of two labels
  int layers = 2, width = 32, heads = 4, feed_forward = 48, context = 64;
  std::map<std::string, int> keys = {};  // of the architecture, instead of what they should be
};

// The file's path, of this process. A token for each word of "the cat sat on a mat dog ran home", and for letters.
std::string tiny_encoder(const TinyEncoder& shape, const std::string& name = "encoder.gguf");

// Hidden states of a `bert` file after the last layer, in double precision: [tokens][width].
std::vector<std::vector<double>> plain_bert(const std::string& path, const std::vector<TokenId>& tokens);
// The score of its head for one hidden state.
double plain_score(const std::string& path, const std::vector<double>& hidden);

}  // namespace palimpsest::testing
