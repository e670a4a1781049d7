// GET /v1/sessions/NAME/memory: the memory map of a saved session.
#pragma once

namespace httplib {
struct Request;
struct Response;
}  // namespace httplib

namespace palimpsest {

class Service;
class Sessions;

// `sessions`: of the client. Query: layer, head, from, max (docs/server.md).
void session_memory(Service& service, Sessions& sessions, const httplib::Request& in, httplib::Response& out);

}  // namespace palimpsest
