// llama-server's /completion: its requests as OpenAI's. Its replies: reply_form.h.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/server/completion_request.h"

namespace palimpsest {

struct LlamaRequest {
  Json body;  // for /v1/completions
  bool return_tokens = false;
  std::vector<std::string> response_fields;  // empty: all
};

// Throws ApiError.
LlamaRequest read_llama(const Json& body, const ServedModel& model);

}  // namespace palimpsest
