// Devices of other machines, through ggml's RPC backend (a plug-in). Its protocol has neither authentication nor
// encryption: servers belong on loopback, a private network or a tunnel.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// Adds the devices of servers, "host:port,host:port", to those of model/backend.h, as RPC0, RPC1, ... Returns their
// names, comma-separated; a server that is known already is not added again. Throws Error for a server that cannot be
// reached, does not answer, or has another version.
// If a connection breaks later, ggml ends the process; it then prints one line and exits with code 2.
std::string add_rpc_servers(std::string_view servers);

struct RpcServerOptions {
  std::string host = "127.0.0.1";  // an IPv4 address
  int port = 50052;
  std::string devices = {};  // as for find_devices()
  int threads = 1;           // of the CPU
  std::string cache = {};    // folder for weights that clients have sent; empty: none
};
bool is_loopback(std::string_view host);
void check_rpc_server(const RpcServerOptions& options);  // throws Error if it could not start
// Runs ggml's RPC server until the process ends. Throws Error if it cannot start.
[[noreturn]] void serve_rpc(const RpcServerOptions& options);

// Detects hosts that vanish without closing their connections: TCP keep-alive, 10 to 25 s.
void keep_rpc_connections_alive();

}  // namespace palimpsest
