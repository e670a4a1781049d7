// Embeddings of the texts of one HTTP request: hidden states, pooled and normalised.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/engine/request.h"
#include "palimpsest/server/http/http_types.h"
#include "palimpsest/server/reply/reply_parts.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/server_options.h"

namespace palimpsest {

class Service;

inline constexpr std::size_t kMaxInputs = 2048;  // texts of a request, as in OpenAI's API

struct EmbeddingInput {
  std::vector<SharedTokens> texts;
  Method method;
};

// The text, or the texts, of the field `name`; "dimensions" and "cache". Throws ApiError.
EmbeddingInput read_texts(JsonFields& fields, const char* name, Service& service);
// The same for texts alone.
EmbeddingInput read_texts(const std::vector<std::string>& texts, const char* name, Service& service);

// [texts][width], in their order. Adds their tokens to `usage`. Throws ApiError.
std::vector<std::vector<float>> text_embeddings(Service& service, const ServerOptions& options, EmbeddingInput input,
                                                const httplib::Request& http, ReplyUsage& usage);

}  // namespace palimpsest
