// Who may call an endpoint: by API keys, names of the server and origins of web pages.
#pragma once

#include "palimpsest/server/http/http_types.h"
#include "palimpsest/server/server_options.h"

namespace palimpsest {

// Throws ApiError for who may not. false: it was a browser's question before a request, and is answered.
bool admit(const ServerOptions& options, const httplib::Request& in, httplib::Response& out);

}  // namespace palimpsest
