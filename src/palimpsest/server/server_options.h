// Options of the HTTP server.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace palimpsest {

struct ServerOptions {
  // Loopback only by default. A Unix socket: "unix:PATH", or a path that ends with ".sock" (as llama-server has it).
  std::string host = "127.0.0.1";
  int port = 8080;                                     // 0: any free port
  std::vector<std::string> api_keys;                   // a request needs one of them; empty: no authentication
  std::size_t max_body = std::size_t{8} << 20;         // bytes of a request body
  std::chrono::milliseconds timeout{600'000};          // of a request, queue time included; 0: none
  std::chrono::milliseconds io_timeout{30'000};        // of one read or write on a connection
  std::chrono::milliseconds shutdown_timeout{10'000};  // for running requests at shutdown
  std::chrono::milliseconds ping_interval{15'000};     // of comments in a stream without tokens; 0: none
  // Names that the server is called by, beside those that is_allowed_host() takes; "*": any.
  std::vector<std::string> allowed_hosts;
  std::string cors_origin;  // of pages that may call the server; "*": all; empty: none
  bool page = true;         // at /
  bool quiet = false;       // no log
};

}  // namespace palimpsest
