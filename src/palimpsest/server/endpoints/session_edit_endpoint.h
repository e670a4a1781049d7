// POST /v1/sessions/NAME/edit: replaces tokens of a saved session's text.
#pragma once

#include "palimpsest/server/http/http_types.h"

namespace palimpsest {

class Service;
class Sessions;
struct ServerOptions;

// `sessions`: of the client. Body: first, last, text, mode, save (docs/server.md).
void edit_session(Service& service, Sessions& sessions, const ServerOptions& options, const httplib::Request& in,
                  httplib::Response& out);

}  // namespace palimpsest
