// The HTTP server: sockets, keys and limits around the routes.
#pragma once

#include <memory>

#include "palimpsest/server/server_options.h"
#include "palimpsest/server/service.h"

namespace palimpsest {

class Server {
 public:
  Server(std::shared_ptr<Service> service, const ServerOptions& options);
  ~Server();

  int bind();  // the port; throws Error if it cannot be had
  void run();  // serves until shut_down(), from one thread

  // From another thread: refuses what is new, waits for what runs, cancels what takes longer than the grace, ends
  // run().
  void shut_down();
  Service& service() { return *service_; }

 private:
  struct Impl;
  std::shared_ptr<Service> service_;
  ServerOptions options_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest
