// The requests of OpenAI's /v1/responses.
#pragma once

#include <string>

#include "palimpsest/server/request/completion_request.h"

namespace palimpsest {

struct ResponsesRequest {
  CompletionInput input;
  bool store = true;
  Json items = {};  // of the input, after those of the response that this one continues; without `instructions`
};

// `previous`: the items of the response that this one continues, or an empty list. Throws ApiError.
ResponsesRequest read_responses(const Json& body, const Json& previous, const ServedModel& model);

}  // namespace palimpsest
