// Handler of /v1/completions and /v1/chat/completions: one JSON object or server-sent events.
#pragma once

#include <chrono>
#include <memory>

namespace httplib {
struct Request;
struct Response;
}  // namespace httplib

namespace palimpsest {

class Service;

// `timeout`: from the request's arrival to its last token; 0 disables it. Throws ApiError or Error.
void complete(const std::shared_ptr<Service>& service, bool chat, std::chrono::milliseconds timeout,
              const httplib::Request& request, httplib::Response& response);

}  // namespace palimpsest
