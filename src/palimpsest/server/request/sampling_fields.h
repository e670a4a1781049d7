// Sampling options of requests, under the names of OpenAI, vLLM, llama-server and Ollama.
#pragma once

#include <string>

#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/text/sampler_options.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

// `out`: the defaults; fields that are given replace them. Throws ApiError that names the invalid field.
void read_sampling(JsonFields& fields, const Vocabulary& vocabulary, SamplerOptions& out);
// As a whole: after the grammar is known. `where`: the prefix of these fields, as in "options.".
void check_sampling(const SamplerOptions& options, const Vocabulary& vocabulary, const std::string& where);

// Under llama-server's names.
Json sampling_json(const SamplerOptions& options);

}  // namespace palimpsest
