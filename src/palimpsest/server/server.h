// The HTTP server: sockets, threads and limits around the endpoints.
#pragma once

#include <memory>
#include <string>

#include "palimpsest/server/model_host.h"
#include "palimpsest/server/server_options.h"

namespace palimpsest {

class Server {
 public:
  Server(std::shared_ptr<Service> service, const ServerOptions& options);
  // `limits`: of the requests of each model.
  Server(std::shared_ptr<ModelHost> host, const SchedulerOptions& limits, const ServerOptions& options);
  ~Server();

  int bind();               // returns the port, 0 for a Unix socket; throws Error if it is not available
  std::string url() const;  // after bind(): "http://127.0.0.1:8080", "unix:/run/palimpsest.sock"
  void run();               // serves until shut_down(); call from one thread only

  // Called from another thread: refuses new requests, waits for running ones, cancels them after the grace period,
  // ends run().
  void shut_down();
  Service& service() { return *host_->only(); }  // Requires: there is one model

 private:
  struct Impl;
  std::shared_ptr<ModelHost> host_;
  ServerOptions options_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest
