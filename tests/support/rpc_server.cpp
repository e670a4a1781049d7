#include "tests/support/rpc_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ggml-backend.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <thread>

#include "palimpsest/model/backend.h"
#include "palimpsest/model/rpc.h"

namespace palimpsest::testing {

namespace {

constexpr const char* kPort = "PALIMPSEST_TEST_RPC_SERVER";

sockaddr_in local(int port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(static_cast<std::uint16_t>(port));
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return out;
}

// In the started program: before any test.
const bool g_serves = [] {
  const char* port = std::getenv(kPort);
  if (port == nullptr) return false;
#ifdef __linux__
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  try {
    serve_rpc({.port = std::atoi(port), .threads = 1});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "RPC server of a test: %s\n", error.what());
    ::_exit(1);
  }
}();

bool accepts(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = local(port);
  const bool open = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(socket);
  return open;
}

}  // namespace

std::string why_no_rpc() {
#ifdef __SANITIZE_THREAD__
  return "ThreadSanitizer does not see the threads of ggml's RPC backend";
#else
  list_devices();
  if (ggml_backend_reg_by_name("RPC") != nullptr && !g_serves) return "";
  return "needs ggml's RPC backend (Debian: libggml0-backend-rpc)";
#endif
}

int free_local_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = local(0);
  socklen_t size = sizeof address;
  ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(socket);
  return ntohs(address.sin_port);
}

RpcServer::RpcServer() : port_(free_local_port()) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string port = std::to_string(port_);
  process_ = ::fork();
  if (process_ == 0) {
    ::setenv(kPort, port.c_str(), 1);
    const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nothing, STDOUT_FILENO);
    ::execl(self.c_str(), self.c_str(), nullptr);
    ::_exit(127);
  }
  for (int tries = 0; tries < 600 && !accepts(port_); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

RpcServer::~RpcServer() {
  kill();
}

std::string RpcServer::address() const {
  return "127.0.0.1:" + std::to_string(port_);
}

void RpcServer::kill() {
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  process_ = -1;
}

const std::string& two_rpc_servers() {
  // Not ended before the program: models that are freed late still talk to them.
  static const auto* const one = new RpcServer;
  static const auto* const other = new RpcServer;
  static const std::string both = one->address() + "," + other->address();
  return both;
}

}  // namespace palimpsest::testing
