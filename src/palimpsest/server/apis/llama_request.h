// The requests of llama-server's /completion and /infill.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/server/request/completion_request.h"

namespace palimpsest {

struct LlamaRequest {
  CompletionInput input;
  bool return_tokens = false;
  std::vector<std::string> response_fields = {};  // empty: all
};

// Throws ApiError.
LlamaRequest read_llama(const Json& body, const ServedModel& model);
LlamaRequest read_infill(const Json& body, const ServedModel& model);

}  // namespace palimpsest
