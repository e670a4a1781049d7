// /v1/completions and /v1/chat/completions: from a body to an answer, whole or as a stream of events.
#pragma once

#include <chrono>
#include <memory>

namespace httplib {
struct Request;
struct Response;
}  // namespace httplib

namespace palimpsest {

class Service;

// `timeout`: from the request's arrival to its last token; 0: none. Throws ApiError or Error.
void complete(const std::shared_ptr<Service>& service, bool chat, std::chrono::milliseconds timeout,
              const httplib::Request& request, httplib::Response& response);

}  // namespace palimpsest
