// The endpoints and their handlers.
#pragma once

#include <memory>

#include "palimpsest/server/server_options.h"
#include "palimpsest/server/service.h"

namespace httplib {
class Server;
}

namespace palimpsest {

void add_routes(httplib::Server& http, const std::shared_ptr<Service>& service, const ServerOptions& options);

}  // namespace palimpsest
