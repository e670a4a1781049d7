// Generates the answers to a request: one JSON object or a stream.
#pragma once

#include <memory>

#include "palimpsest/server/http/http_types.h"
#include "palimpsest/server/reply/reply_writer.h"
#include "palimpsest/server/request/completion_request.h"
#include "palimpsest/server/server_options.h"

namespace palimpsest {

class Service;

// A new id, also for the log.
ReplyHead reply_head(const Service& service, bool chat, const char* prefix);

// Generates, and answers in the given form. Throws ApiError or Error.
void complete(const std::shared_ptr<Service>& service, CompletionRequest completion, std::unique_ptr<ReplyWriter> form,
              const ServerOptions& options, const httplib::Request& request, httplib::Response& response);

}  // namespace palimpsest
