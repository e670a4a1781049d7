// The endpoints and their handlers: one table, in routes.cpp.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "palimpsest/server/http/http_types.h"
#include "palimpsest/server/model_host.h"
#include "palimpsest/server/server_options.h"

namespace palimpsest {

struct Endpoint {
  std::string_view method, path;  // "GET", "/v1/sessions/NAME": NAME stands for any name
  bool in_help = true;
};
std::vector<Endpoint> endpoints();

void add_routes(httplib::Server& http, const std::shared_ptr<ModelHost>& host, const ServerOptions& options);

}  // namespace palimpsest
