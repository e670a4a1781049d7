// Embeddings of the texts of one HTTP request: hidden states, pooled and normalised. A model that ranks gives scores.
#pragma once

#include <vector>

#include "palimpsest/engine/scheduler/request.h"
#include "palimpsest/server/http/http_call.h"
#include "palimpsest/server/reply/reply_parts.h"

namespace palimpsest {

struct EmbeddingInput {
  std::vector<SharedTokens> texts;
  Method method;
};

// [texts][width], in their order. Adds their tokens to `usage`. Throws ApiError.
std::vector<std::vector<float>> text_embeddings(const HttpCall& call, const EmbeddingInput& input, ReplyUsage& usage);

}  // namespace palimpsest
