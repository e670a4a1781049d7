// Handler of /v1/completions and /v1/chat/completions: one JSON object or server-sent events.
#pragma once

#include <memory>

#include "palimpsest/server/server_options.h"

namespace httplib {
struct Request;
struct Response;
}  // namespace httplib

namespace palimpsest {

class Service;

// Throws ApiError or Error.
void complete(const std::shared_ptr<Service>& service, bool chat, const ServerOptions& options,
              const httplib::Request& request, httplib::Response& response);

}  // namespace palimpsest
