// GET /v1/sessions/NAME/memory: the memory map of a saved session.
#pragma once

#include "palimpsest/server/http/http_types.h"

namespace palimpsest {

class Service;
class Sessions;

// `sessions`: of the client. Query: layer, head, from, max (docs/server.md).
void session_memory(Service& service, Sessions& sessions, const httplib::Request& in, httplib::Response& out);

}  // namespace palimpsest
