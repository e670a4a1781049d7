// ggml RPC servers on loopback, each a process of its own: the test program started again.
#pragma once

#include <sys/types.h>

#include <string>

namespace palimpsest::testing {

std::string why_no_rpc();  // why tests cannot use RPC servers; empty: they can
int free_local_port();     // that nobody listens at now

class RpcServer {
 public:
  RpcServer();  // returns when the server accepts connections
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  std::string address() const;
  void kill();  // with SIGKILL

 private:
  int port_;
  pid_t process_ = -1;
};

// Two servers, started at the first call and used by all tests of this program: "127.0.0.1:P,127.0.0.1:Q".
const std::string& two_rpc_servers();

}  // namespace palimpsest::testing
