// Generates the answers to a request: one JSON object or a stream.
#pragma once

#include <memory>

#include "palimpsest/server/http/http_call.h"
#include "palimpsest/server/reply/reply_writer.h"
#include "palimpsest/server/request/completion_request.h"

namespace palimpsest {

// A new id, also for the log.
ReplyHead reply_head(const HttpCall& call, bool chat, const char* prefix);

// Generates, and answers in the writer's form. Throws ApiError or Error.
void run_completion(const HttpCall& call, CompletionRequest request, std::unique_ptr<ReplyWriter> writer);

}  // namespace palimpsest
