// The HTTP server: sockets, keys and limits around the routes.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "palimpsest/server/service.h"

namespace palimpsest {

struct ServerOptions {
  std::string host = "127.0.0.1";                // loopback: who wants more says so
  int port = 8080;                               // 0: any that is free
  std::string api_key;                           // empty: everybody is served
  std::size_t max_body = std::size_t{8} << 20;   // bytes of a request
  std::chrono::milliseconds timeout{600'000};    // of an answer, the queue included; 0: none
  std::chrono::milliseconds io_timeout{30'000};  // for a client that neither sends nor takes anything
  std::chrono::milliseconds grace{10'000};       // for running answers when the server is asked to end
  bool quiet = false;                            // no log
};

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
