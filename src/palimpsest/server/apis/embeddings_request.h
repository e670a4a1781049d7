// The requests of OpenAI's /v1/embeddings, Ollama's /api/embed and /api/embeddings, and of /v1/rerank.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/server/reply/text_embeddings.h"

namespace palimpsest {

// All throw ApiError.
struct OpenAiEmbeddingsRequest {
  EmbeddingInput input;
  bool base64 = false;
};
OpenAiEmbeddingsRequest read_openai_embeddings(const Json& body, const ServedModel& model);

// `one`: /api/embeddings.
EmbeddingInput read_ollama_embeddings(const Json& body, bool one, const ServedModel& model);

// In the forms of Jina, Cohere and text-embeddings-inference.
struct RerankRequest {
  EmbeddingInput input;  // the query, and the documents; of a model that ranks, each document with the query
  std::vector<std::string> documents;
  std::size_t top = 0;
  bool return_texts = false;
  bool bare_list = false;  // the answer, as text-embeddings-inference has it
};
RerankRequest read_rerank(const Json& body, const ServedModel& model);

}  // namespace palimpsest
