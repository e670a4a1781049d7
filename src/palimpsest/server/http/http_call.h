// One HTTP request at an endpoint, and its answer.
#pragma once

#include <httplib.h>

#include <memory>

#include "palimpsest/server/http/api_keys.h"
#include "palimpsest/server/model_host.h"
#include "palimpsest/server/server_options.h"

namespace palimpsest {

struct HttpCall {
  ModelHost& host;
  const std::shared_ptr<Service>&
      service;  // of the request's model; nullptr if its route needs none and there are many
  const ServerOptions& options;
  const httplib::Request& in;
  httplib::Response& out;
  std::time_t started;  // the server

  const ServedModel& model() const { return service->model(); }
  std::string name() const { return in.matches[1]; }  // in the path
  // Clients of different keys share no sessions, caches and stored responses.
  int key() const { return number_of_key(in, options.api_keys); }
  Sessions& sessions() const { return host.sessions(key()); }
  std::string request_id() const { return out.get_header_value("X-Request-Id"); }
  void reply(const Json& value) const { out.set_content(dump(value), "application/json"); }
  // Throws ApiError if nothing more comes of a wait for the scheduler.
  void check_waits() const {
    if (service->failed()) throw ApiError(500, "server_error", "internal error: see the server's log");
    if (in.is_connection_closed()) throw ApiError(499, "client_closed_request", "the client disconnected");
  }
};

}  // namespace palimpsest
