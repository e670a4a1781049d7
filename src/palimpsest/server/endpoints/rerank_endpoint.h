// /v1/rerank: documents in the order of their likeness to a query, by the cosine of their embeddings (as vLLM does with
// models for embeddings). In the forms of Jina, Cohere and text-embeddings-inference.
#pragma once

#include "palimpsest/server/http/http_types.h"
#include "palimpsest/server/server_options.h"

namespace palimpsest {

class Service;

void rerank(Service& service, const ServerOptions& options, const httplib::Request& in, httplib::Response& out);

}  // namespace palimpsest
