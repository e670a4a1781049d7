#include "palimpsest/server/http/http_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace palimpsest {
namespace {

// Reads the request from memory, writes the answer to the socket (whose timeout is set).
class RequestStream final : public httplib::Stream {
 public:
  explicit RequestStream(const Connection& connection)
      : connection_(connection),
        rest_(std::string_view(connection.received).substr(0, connection.framing.end())),
        start_(std::chrono::steady_clock::now()) {}

  int status() const { return status_; }  // of the answer; 0: none was written

  bool is_readable() const override { return !rest_.empty(); }
  bool wait_readable() const override { return !rest_.empty(); }
  bool wait_writable() const override {
    pollfd each{.fd = connection_.socket, .events = POLLOUT, .revents = 0};
    return ::poll(&each, 1, kMaxWait) > 0 && is_peer_alive();
  }
  bool is_peer_alive() const override {
    char byte = 0;
    const auto count = ::recv(connection_.socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
  }

  ssize_t read(char* to, std::size_t size) override {
    const std::size_t count = std::min(size, rest_.size());
    std::memcpy(to, rest_.data(), count);
    rest_.remove_prefix(count);
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* bytes, std::size_t size) override {
    constexpr std::string_view kVersion = "HTTP/1.1 ";
    if (status_ == 0 && size > kVersion.size() + 3 && std::string_view(bytes, size).starts_with(kVersion))
      status_ = std::atoi(std::string(bytes + kVersion.size(), 3).c_str());
    ssize_t sent = 0;
    do sent = ::send(connection_.socket, bytes, size, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent;
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip = connection_.address;
    port = connection_.port;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  socket_t socket() const override { return connection_.socket; }
  time_t duration() const override {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  static constexpr int kMaxWait = 30'000;  // ms
  const Connection& connection_;
  std::string_view rest_;
  std::chrono::steady_clock::time_point start_;
  int status_ = 0;
};

// The library's way to hand over a connection that it accepted. The accepting thread only adds it.
class OnAcceptingThread final : public httplib::TaskQueue {
 public:
  explicit OnAcceptingThread(Connections& connections) : connections_(connections) {}
  bool enqueue(std::function<void()> add) override {
    add();
    return true;
  }
  void shutdown() override { connections_.stop(); }

 private:
  Connections& connections_;
};

bool is_health_check(std::string_view request) {
  return request.starts_with("GET /health ") || request.starts_with("GET /v1/health ");
}

}  // namespace

HttpServer::HttpServer(const ConnectionLimits& limits)
    : connections_(std::make_unique<Connections>(
          limits, [this](Connection& connection) { return serve(connection); }, is_health_check)) {
  set_keep_alive_timeout(std::chrono::duration_cast<std::chrono::seconds>(limits.idle_timeout).count());
  set_keep_alive_max_count(kMaxRequests);
  set_payload_max_length(limits.max_body);
  new_task_queue = [this] { return new OnAcceptingThread(*connections_); };
}

HttpServer::~HttpServer() {
  stop();
}

bool HttpServer::process_and_close_socket(socket_t socket) {
  connections_->add(socket);
  return true;
}

bool HttpServer::serve(Connection& connection) {
  RequestStream stream(connection);
  const bool last = connection.served + 1 >= kMaxRequests;
  bool closed = false;
  const bool well = process_request(stream, connection.address, connection.port, "", 0, last, closed, nullptr);
  return well && !closed && !last && stream.status() < 400;  // the library announces a close after errors
}

}  // namespace palimpsest
