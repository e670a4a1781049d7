// Embeddings: the hidden states of texts, pooled and normalised. OpenAI's /v1/embeddings, and
// Ollama's /api/embed and /api/embeddings (one text).
#pragma once

#include "palimpsest/server/http/http_types.h"
#include "palimpsest/server/server_options.h"

namespace palimpsest {

class Service;

// Throws ApiError or Error.
void embed(Service& service, const ServerOptions& options, const httplib::Request& in, httplib::Response& out);
void embed_for_ollama(Service& service, const ServerOptions& options, const httplib::Request& in,
                      httplib::Response& out);
void embed_one_for_ollama(Service& service, const ServerOptions& options, const httplib::Request& in,
                          httplib::Response& out);

}  // namespace palimpsest
