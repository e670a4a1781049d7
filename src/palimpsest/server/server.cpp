#include "palimpsest/server/server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>

#include "palimpsest/core/error.h"
#include "palimpsest/server/endpoints/routes.h"
#include "palimpsest/server/http/http_server.h"
#include "palimpsest/server/log.h"

namespace palimpsest {
namespace {

constexpr std::size_t kSpareThreads = 64;      // for requests beyond running + queued ones: they get 429
constexpr std::size_t kMaxConnections = 8192;  // if the limit of open files allows them
constexpr std::size_t kMaxWaiting = 1024;      // whole requests that wait for a thread
constexpr int kBacklog = 512;                  // connections that wait to be accepted

// A running request occupies a thread, which sleeps.
ConnectionLimits connection_limits(const SchedulerOptions& scheduler, const ServerOptions& options) {
  ConnectionLimits limits;
  const std::size_t open = max_open_connections(kMaxConnections);
  limits.max_threads = static_cast<std::size_t>(scheduler.max_sequences) + scheduler.max_queue + kSpareThreads;
  limits.max_waiting = std::min(kMaxWaiting, open / 4);
  limits.max_connections = open - limits.max_waiting - std::min(limits.max_threads, open / 4);
  limits.max_body = options.max_body;
  limits.max_received = std::max(limits.max_received, 4 * options.max_body);
  limits.head_timeout = std::min(limits.head_timeout, options.io_timeout);
  limits.body_timeout = options.io_timeout;
  return limits;
}

// The path of the Unix socket that a host names; empty: it names an address.
std::string socket_path(const std::string& host) {
  constexpr std::string_view kPrefix = "unix:";
  if (host.starts_with(kPrefix)) return host.substr(kPrefix.size());
  return host.ends_with(".sock") ? host : std::string();
}

// Removes the socket of a server that was killed. Throws Error if one listens.
void remove_stale_socket(const std::string& path) {
  if (!std::filesystem::is_socket(std::filesystem::symlink_status(path))) return;
  httplib::Client client(path);
  client.set_address_family(AF_UNIX);
  if (const auto answer = client.Get("/health"); answer || answer.error() != httplib::Error::Connection)
    fail("{} is not available: another server listens on this socket; choose another path", path);
  std::filesystem::remove(path);
}

}  // namespace

struct Server::Impl {
  explicit Impl(const ConnectionLimits& limits) : http(limits) {}
  HttpServer http;
  bool bound = false;
  std::string socket;      // path of the Unix socket; empty: none
  socket_t listening = 0;  // after bind()
  std::once_flag shut_down_once;
};

Server::Server(std::shared_ptr<Service> service, const ServerOptions& options)
    : Server(std::make_shared<ModelHost>(service), service->options(), options) {}

Server::Server(std::shared_ptr<ModelHost> host, const SchedulerOptions& limits, const ServerOptions& options)
    : host_(std::move(host)), options_(options), impl_(std::make_unique<Impl>(connection_limits(limits, options))) {
  // A Unix socket is reached through a proxy only, which chooses the names.
  options_.allowed_hosts.push_back(socket_path(options_.host).empty() ? options_.host : "*");
  if (std::array<char, 256> name{}; gethostname(name.data(), name.size() - 1) == 0)
    options_.allowed_hosts.emplace_back(name.data());
  HttpServer& http = impl_->http;
  http.set_write_timeout(options_.io_timeout);
  http.set_tcp_nodelay(true);
  // Not httplib's default, SO_REUSEPORT: two servers would silently share a port.
  http.set_socket_options([impl = impl_.get()](socket_t socket) {
    impl->listening = socket;  // the last is the one that could be bound
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  });
  add_routes(http, host_, options_);
}

Server::~Server() {
  impl_->http.stop();
  std::error_code ignored;
  if (!impl_->socket.empty()) std::filesystem::remove(impl_->socket, ignored);
}

int Server::bind() {
  const std::string path = socket_path(options_.host);
  int port = -1;
  if (!path.empty()) {
    remove_stale_socket(path);
    impl_->http.set_address_family(AF_UNIX);
    if (!impl_->http.bind_to_port(path, 80))  // a number that httplib wants, and ignores
      fail("{}: the socket cannot be created: is its folder there, and writable? The path has at most {} bytes", path,
           sizeof sockaddr_un::sun_path - 1);
    impl_->socket = path;
    port = 0;
  } else if (options_.port == 0) {
    port = impl_->http.bind_to_any_port(options_.host);
  } else if (impl_->http.bind_to_port(options_.host, options_.port)) {
    port = options_.port;
  }
  if (port < 0)
    fail(
        "{}:{} is not available: the port is in use, or the address is not this machine's; choose another --host or "
        "--port (0: any free port)",
        options_.host, options_.port);
  // httplib listens with a backlog of 5: of many clients that connect at the same time, some are reset.
  ::listen(impl_->listening, kBacklog);
  impl_->bound = true;
  options_.port = port;
  return port;
}

std::string Server::url() const {
  if (!impl_->socket.empty()) return "unix:" + impl_->socket;
  const bool ipv6 = options_.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", ipv6 ? "[" : "", options_.host, ipv6 ? "]" : "", options_.port);
}

void Server::run() {
  if (!impl_->bound) bind();
  impl_->http.listen_after_bind();
}

void Server::shut_down() {
  using namespace std::chrono_literals;
  std::call_once(impl_->shut_down_once, [&] {
    host_->close();
    log_event("shutting down", {{"grace_ms", options_.shutdown_timeout.count()}}, options_.quiet);
    if (!host_->wait_until_idle(options_.shutdown_timeout)) {
      host_->cancel_all();
      host_->wait_until_idle(5s);
    }
    impl_->http.wait_until_ready();
    impl_->http.stop();
  });
}

}  // namespace palimpsest
