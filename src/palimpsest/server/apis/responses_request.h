// The requests of OpenAI's /v1/responses. Its replies: reply_writer.h.
#pragma once

#include <string>

#include "palimpsest/server/request/completion_request.h"

namespace palimpsest {

struct ResponseRequest {
  CompletionInput input;
  Json items;  // of the input, after those of the response that this one continues; without `instructions`
};

// `previous`: the items of the response that this one continues, or an empty list. Throws ApiError.
ResponseRequest read_response(const Json& body, const Json& previous, const ServedModel& model);

}  // namespace palimpsest
