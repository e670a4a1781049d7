// cpp-httplib's server over our connections: requests are parsed from memory, once they have arrived whole.
#pragma once

#include <httplib.h>

#include <chrono>
#include <memory>

#include "palimpsest/server/http/connections.h"

namespace palimpsest {

class HttpServer final : public httplib::Server {
 public:
  explicit HttpServer(const ConnectionLimits& limits);
  ~HttpServer() override;

 private:
  bool process_and_close_socket(socket_t socket) override;
  bool serve(Connection& connection);

  static constexpr int kMaxRequests = 1000;  // of one connection
  std::unique_ptr<Connections> connections_;
};

}  // namespace palimpsest
