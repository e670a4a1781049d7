// Files of encoders: models that read a whole text at once, without a KV cache, for embeddings and scores
// (docs/decisions/0056-encoders.md). libllama runs them; what it would abort on is checked here.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "palimpsest/core/gguf_file.h"

namespace palimpsest {

// How the hidden states of a text become its result.
enum class EncoderPooling {
  kMean,  // the mean of all tokens
  kCls,   // of the first token
  kLast,  // of the last token
  kRank   // a score: the first or last token's, or the mean, through the file's classification head
};
std::string_view name_of(EncoderPooling pooling);             // "mean"
EncoderPooling parse_encoder_pooling(std::string_view text);  // throws Error

// Of libllama.
std::span<const std::string_view> encoder_architectures();
// An encoder, or any model that ranks by a head of its own.
bool is_encoder(const GgufFile& file);

struct EncoderFile {
  std::string architecture, name;
  int layers = 0, width = 0, heads = 0, context = 0;
  EncoderPooling pooling = EncoderPooling::kMean;  // the file's, else mean
  bool has_head = false;                           // a classification head, for kRank
  std::size_t parameters = 0, weight_bytes = 0;
};
EncoderFile read_encoder(const GgufFile& file);  // throws Error

}  // namespace palimpsest
