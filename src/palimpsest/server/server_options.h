// How the HTTP server listens and what it allows.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

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

}  // namespace palimpsest
