#include "palimpsest/model/rpc.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ggml-backend.h>
#include <ggml-rpc.h>
#include <ggml.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/core/parse.h"
#include "palimpsest/model/backend.h"

namespace palimpsest {

namespace {

constexpr int kConnectMs = 5000, kAnswerMs = 10000, kLookMs = 1000, kLooks = 10;
constexpr int kFirstFree = 3, kLastDescriptor = 4096;

struct Server {
  std::string host;
  int port = 0;
  sockaddr_in address{};
  std::string names;  // of its devices

  std::string text() const { return fmt::format("{}:{}", host, port); }
};

struct Servers {
  std::mutex mutex;
  std::vector<Server> known;
};
Servers& servers() {
  static auto* const all = new Servers;  // used while the process ends
  return *all;
}

class Socket {
 public:
  Socket() : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return descriptor_; }

  // 0, or errno.
  int connect_to(const sockaddr_in& address, int milliseconds) const {
    if (descriptor_ < 0) return errno;
    ::fcntl(descriptor_, F_SETFL, ::fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
    if (::connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    if (!ready(POLLOUT, milliseconds)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
  }
  bool ready(short events, int milliseconds) const {
    pollfd wanted{descriptor_, events, 0};
    return ::poll(&wanted, 1, milliseconds) == 1;
  }

 private:
  int descriptor_;
};

Server parse_server(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0 || text.find(':', colon + 1) != std::string_view::npos)
    fail("--rpc {}: give HOST:PORT, as in 127.0.0.1:50052 (IPv4)", text);
  Server server;
  server.host = text.substr(0, colon);
  server.port = static_cast<int>(parse_integer(text.substr(colon + 1), "--rpc: the port", 1, 65535));
  addrinfo wanted{};
  wanted.ai_family = AF_INET;  // as ggml
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(server.host.c_str(), nullptr, &wanted, &found); error != 0)
    fail("RPC server {}: the host is unknown ({})", server.text(), ::gai_strerror(error));
  std::memcpy(&server.address, found->ai_addr, sizeof server.address);
  ::freeaddrinfo(found);
  server.address.sin_port = htons(static_cast<std::uint16_t>(server.port));
  return server;
}

// Greets the server as ggml does, which would end the process at any failure. Message: command (1 byte), size (8),
// data; answer: size (8), data, which begins with the version.
void check(const Server& server) {
  const Socket socket;
  if (const int error = socket.connect_to(server.address, kConnectMs); error != 0)
    fail("RPC server {} cannot be reached ({}): start `palimpsest rpc-server` there, or check the address",
         server.text(), std::strerror(error));
  constexpr std::uint8_t kHello = 14;
  constexpr std::size_t kHead = 9, kCapabilities = 24, kVersion = 4, kAnswer = 8;
  std::array<std::uint8_t, kHead + kCapabilities> hello{kHello, kCapabilities};
  std::array<std::uint8_t, kAnswer + kVersion + kCapabilities> answer{};
  const auto other = [&](const std::string& what) {
    fail("{} {}: it is no ggml RPC server, or one of another version than {}.{} here: use the same ggml on both sides",
         server.text(), what, RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION);
  };
  if (::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(hello.size()))
    other("closed the connection");
  for (std::size_t have = 0; have < answer.size();) {
    if (!socket.ready(POLLIN, kAnswerMs))
      fail(
          "RPC server {} accepts connections but does not answer: it serves one client at a time, and is in use; or it "
          "is no ggml RPC server",
          server.text());
    const ssize_t got = ::recv(socket.get(), answer.data() + have, answer.size() - have, 0);
    if (got <= 0) other("closed the connection");
    have += static_cast<std::size_t>(got);
    constexpr std::array<std::uint8_t, kAnswer> kSize{kVersion + kCapabilities};
    if (have >= kAnswer && !std::equal(kSize.begin(), kSize.end(), answer.begin())) other("answers something else");
  }
  const int major = answer[kAnswer], minor = answer[kAnswer + 1];
  if (major != RPC_PROTO_MAJOR_VERSION || minor > RPC_PROTO_MINOR_VERSION)
    fail("RPC server {} has protocol version {}.{}, this program {}.{}: use the same ggml on both sides", server.text(),
         major, minor, RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION);
}

// ggml calls this before it ends the process: a broken connection is found on a thread of its own, which cannot throw.
void before_abort(const char* message) {
  const std::string_view text = message == nullptr ? "" : message;
  if (text.find("ggml-rpc") == std::string_view::npos) {
    fmt::print(stderr, "palimpsest: ggml stopped: {}\n", text);
    std::fflush(stderr);
    return;
  }
  std::string lost;
  for (int tries = 0; lost.empty() && tries < kLooks;
       ++tries) {  // the port of a process that ends closes a little later
    if (tries > 0) std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs / kLooks));
    for (const Server& server : servers().known)
      if (Socket().connect_to(server.address, kLookMs) != 0) lost += (lost.empty() ? "" : ", ") + server.text();
  }
  fmt::print(stderr,
             "palimpsest: error: the connection to RPC server {} broke, and its keys and values are lost: start the "
             "server again, then this command\n",
             lost.empty() ? "(unknown)" : lost);
  std::fflush(stderr);
  ::_exit(2);
}

ggml_backend_reg_t rpc_backend() {
  list_devices();  // loads the backends
  ggml_backend_reg_t const backend = ggml_backend_reg_by_name("RPC");
  if (backend == nullptr)
    fail(
        "ggml's RPC backend is not installed: install it (Debian: libggml0-backend-rpc), or build ggml with "
        "-DGGML_RPC=ON");
  return backend;
}

std::string ipv4_of(const std::string& host) {
  return host == "localhost" ? "127.0.0.1" : host;
}

template <typename Function>
Function function(const char* name) {
  void* const found = ggml_backend_reg_get_proc_address(rpc_backend(), name);
  if (found == nullptr) fail("ggml's RPC backend has no {}: install the version of ggml's other libraries", name);
  return reinterpret_cast<Function>(found);
}

}  // namespace

std::string add_rpc_servers(std::string_view list) {
  const auto add = function<decltype(&ggml_backend_rpc_add_server)>("ggml_backend_rpc_add_server");
  const std::lock_guard lock(servers().mutex);
  std::string names;
  for (std::size_t first = 0; first <= list.size();) {
    const std::size_t end = std::min(list.find(',', first), list.size());
    Server server = parse_server(list.substr(first, end - first));
    first = end + 1;
    std::vector<Server>& known = servers().known;
    const auto found = std::ranges::find(known, server.text(), &Server::text);
    if (found != known.end()) {
      names += (names.empty() ? "" : ",") + found->names;
      continue;
    }
    check(server);
    ggml_set_abort_callback(before_abort);
    // A write to a broken connection is an error that ggml reports.
    if (const auto before = std::signal(SIGPIPE, SIG_IGN); before != SIG_DFL) std::signal(SIGPIPE, before);
    known.push_back(server);
    ggml_backend_reg_t const backend = add(server.text().c_str());
    if (backend == nullptr) {
      known.pop_back();
      fail("RPC server {} has no devices", server.text());
    }
    ggml_backend_register(backend);
    for (std::size_t i = 0; i < ggml_backend_reg_dev_count(backend); ++i)
      known.back().names +=
          (i == 0 ? "" : ",") + std::string(ggml_backend_dev_name(ggml_backend_reg_dev_get(backend, i)));
    names += (names.empty() ? "" : ",") + known.back().names;
  }
  return names;
}

void keep_rpc_connections_alive() {
  const std::lock_guard lock(servers().mutex);
  for (int each = kFirstFree; each < kLastDescriptor; ++each) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(each, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || peer.sin_family != AF_INET) continue;
    const bool ours = std::ranges::any_of(servers().known, [&](const Server& s) {
      return s.address.sin_port == peer.sin_port && s.address.sin_addr.s_addr == peer.sin_addr.s_addr;
    });
    if (!ours) continue;
    constexpr int kOn = 1, kIdle = 10, kInterval = 5, kCount = 3;
    ::setsockopt(each, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof kOn);
#ifdef TCP_KEEPIDLE
    ::setsockopt(each, IPPROTO_TCP, TCP_KEEPIDLE, &kIdle, sizeof kIdle);
    ::setsockopt(each, IPPROTO_TCP, TCP_KEEPINTVL, &kInterval, sizeof kInterval);
    ::setsockopt(each, IPPROTO_TCP, TCP_KEEPCNT, &kCount, sizeof kCount);
#endif
  }
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host.starts_with("127.");
}

void check_rpc_server(const RpcServerOptions& options) {
  rpc_backend();
  find_devices(options.devices);
  const std::string host = ipv4_of(options.host);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(options.port));
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1)
    fail("--host {}: give an IPv4 address of this machine, as in 127.0.0.1", options.host);
  const Socket probe;
  constexpr int kOn = 1;
  ::setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &kOn, sizeof kOn);
  if (::bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    fail("cannot listen at {}:{} ({}): choose another --host or --port", host, options.port, std::strerror(errno));
}

void serve_rpc(const RpcServerOptions& options) {
  check_rpc_server(options);
  const auto start = function<decltype(&ggml_backend_rpc_start_server)>("ggml_backend_rpc_start_server");
  std::vector<ggml_backend_dev_t> devices = find_devices(options.devices);
  start(fmt::format("{}:{}", ipv4_of(options.host), options.port).c_str(),
        options.cache.empty() ? nullptr : options.cache.c_str(), static_cast<std::size_t>(options.threads),
        devices.size(), devices.data());
  fail("ggml's RPC server stopped: see its message above");
}

}  // namespace palimpsest
