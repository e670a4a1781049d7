#include "palimpsest/server/http/connections.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/server/api_error.h"
#include "palimpsest/server/log.h"

namespace palimpsest {
namespace {

using namespace std::chrono_literals;

constexpr auto kDrain = 2s;        // for the client to read an answer and close
constexpr auto kLastAnswers = 1s;  // for answers that are being written when the server stops
constexpr std::size_t kMaxDrained = std::size_t{64} << 20;
constexpr std::size_t kKeptBuffer = std::size_t{64} << 10;  // of an idle connection
constexpr std::size_t kReadSize = std::size_t{64} << 10;
constexpr std::size_t kOtherFiles = 64;  // open files that are no connections

std::pair<std::string, int> peer_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(socket, any, &size) != 0 || (address.ss_family != AF_INET && address.ss_family != AF_INET6) ||
      getnameinfo(any, size, host.data(), host.size(), port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  return {host.data(), std::atoi(port.data())};
}

const char* reason_of(int status) {
  switch (status) {
    case 408:
      return "Request Timeout";
    case 431:
      return "Request Header JsonFields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Request";
  }
}

ApiError error_of_refusal(int status) {
  switch (status) {
    case 408:
      return {408, "invalid_request_error", "the request did not arrive in time: send it faster, or in one piece"};
    case 431:
      return {431, "invalid_request_error", "the request's headers are too long"};
    case 503:
      return {503, "server_error", "too many requests wait: try again later", "", "too_many_connections"};
    default:
      return {400, "invalid_request_error", "the request's length cannot be read: give one valid Content-Length"};
  }
}

}  // namespace

std::size_t max_open_connections(std::size_t wanted) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  const rlim_t needed = wanted + kOtherFiles;
  if (files.rlim_cur < needed) {
    files.rlim_cur = std::min(needed, files.rlim_max);
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
  }
  return std::min<std::size_t>(wanted, files.rlim_cur > 2 * kOtherFiles ? files.rlim_cur - kOtherFiles : kOtherFiles);
}

Connections::Connections(const ConnectionLimits& limits, Serve serve, Urgent urgent)
    : limits_(limits),
      serve_(std::move(serve)),
      urgent_(std::move(urgent)),
      threads_(limits.max_threads, limits.max_waiting) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) fail("the server cannot start: no pipe can be opened");
  wake_read_ = ends[0];
  wake_write_ = ends[1];
  for (const int end : ends) {
    fcntl(end, F_SETFL, O_NONBLOCK);
    fcntl(end, F_SETFD, FD_CLOEXEC);
  }
  reader_ = std::thread([this] { run(); });
}

void Connections::wake() {
  [[maybe_unused]] const auto ignored = ::write(wake_write_, "", 1);  // full: it is awake
}

void Connections::add(int socket) {
  auto [address, port] = peer_of(socket);
  auto connection = std::make_unique<Connection>(socket, std::move(address), port, limits_.max_body);
  connection->since = Clock::now();
  connection->deadline = connection->since + limits_.head_timeout;
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_) arrived_.push_back(std::move(connection));
  }
  if (connection != nullptr) return close(std::move(connection));
  wake();
}

void Connections::close(Owned connection) {
  ::close(connection->socket);
}

void Connections::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
  }
  wake();
  reader_.join();  // it closes what is parked
  {
    std::unique_lock lock(mutex_);
    served_.wait_for(lock, kLastAnswers, [&] { return serving_.empty(); });
    for (const int socket : serving_) ::shutdown(socket, SHUT_RDWR);
  }
  threads_.shut_down();
  ::close(wake_read_);
  ::close(wake_write_);
}

void Connections::run() {
  std::vector<pollfd> polled;
  std::vector<std::list<Owned>::iterator> of_polled;
  for (;;) {
    std::vector<Owned> arrived;
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) break;
      arrived.swap(arrived_);
    }
    for (Owned& connection : arrived) park(std::move(connection));
    make_room();

    polled.assign(1, {.fd = wake_read_, .events = POLLIN, .revents = 0});
    of_polled.clear();
    Clock::time_point next = Clock::time_point::max();
    for (auto at = parked_.begin(); at != parked_.end(); ++at) {
      polled.push_back({.fd = (*at)->socket, .events = POLLIN, .revents = 0});
      of_polled.push_back(at);
      next = std::min(next, (*at)->deadline);
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    const int timeout = parked_.empty() ? -1 : static_cast<int>(std::clamp<long long>(wait, 0, 60'000));
    if (::poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR) break;
    std::array<char, 256> woken{};
    while (::read(wake_read_, woken.data(), woken.size()) > 0) {
    }
    for (std::size_t i = 0; i < of_polled.size(); ++i)
      if (polled[i + 1].revents != 0) receive(of_polled[i]);
    const auto now = Clock::now();
    for (auto at = parked_.begin(); at != parked_.end();) {
      const auto each = at++;
      if ((*each)->deadline > now) continue;
      Owned connection = std::move(*each);
      received_ -= connection->received.size();
      parked_.erase(each);
      const bool waits = connection->phase == Connection::Phase::kDrain ||
                         connection->framing.state() == RequestFraming::State::kEmpty;
      if (waits)
        close(std::move(connection));
      else
        refuse(std::move(connection), 408);
    }
  }
  for (Owned& connection : parked_) close(std::move(connection));
  parked_.clear();
  const std::lock_guard lock(mutex_);
  for (Owned& connection : arrived_) close(std::move(connection));
  arrived_.clear();
}

void Connections::park(Owned connection) {
  received_ += connection->received.size();
  parked_.push_back(std::move(connection));
  const auto at = std::prev(parked_.end());
  if (!(*at)->received.empty() && (*at)->phase == Connection::Phase::kRequest) advance(at);
}

void Connections::receive(std::list<Owned>::iterator at) {
  Connection& connection = **at;
  std::array<char, kReadSize> bytes;  // NOLINT: not initialised
  const auto count = ::recv(connection.socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  const bool drains = connection.phase == Connection::Phase::kDrain;
  if (drains && count > 0) connection.drained += static_cast<std::size_t>(count);
  if (count <= 0 || connection.drained > kMaxDrained) {
    received_ -= connection.received.size();
    close(std::move(*at));
    parked_.erase(at);
    return;
  }
  if (drains) return;
  received_ += static_cast<std::size_t>(count);
  connection.received.append(bytes.data(), static_cast<std::size_t>(count));
  advance(at);
}

void Connections::advance(std::list<Owned>::iterator at) {
  using State = RequestFraming::State;
  Connection& connection = **at;
  const State before = connection.framing.state();
  const std::size_t size = connection.received.size();
  const State state = connection.framing.read(connection.received);
  received_ -= size - connection.received.size();
  const auto now = Clock::now();
  if (connection.framing.wants_continue()) {
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    [[maybe_unused]] const auto ignored =
        ::send(connection.socket, kContinue.data(), kContinue.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  if (state == State::kEmpty) return;
  if (state == State::kHead) {
    if (before != State::kHead) connection.since = now, connection.deadline = now + limits_.head_timeout;
    return;
  }
  if (state == State::kBody) {
    if (before != State::kBody) connection.since = now;
    connection.deadline = connection.since + limits_.body_timeout +
                          std::chrono::milliseconds(1000 * connection.received.size() / limits_.min_rate);
    return;
  }
  Owned whole = std::move(*at);
  parked_.erase(at);
  received_ -= whole->received.size();
  if (state == State::kTooLong)
    refuse(std::move(whole), 431);
  else if (state == State::kBad)
    refuse(std::move(whole), 400);
  else
    dispatch(std::move(whole));
}

void Connections::dispatch(Owned connection) {
  {
    const std::lock_guard lock(mutex_);
    serving_.insert(connection->socket);
  }
  const bool urgent = urgent_(connection->received);
  auto shared = std::make_shared<Owned>(std::move(connection));  // std::function copies
  if (threads_.enqueue([this, shared] { serve(std::move(*shared)); }, urgent)) return;
  {
    const std::lock_guard lock(mutex_);
    serving_.erase((*shared)->socket);
  }
  refuse(std::move(*shared), 503);
}

void Connections::serve(Owned connection) {
  bool keep = false;
  try {
    keep = serve_(*connection);
  } catch (...) {  // its connection ends
  }
  const bool cut = connection->framing.state() == RequestFraming::State::kCut;
  const auto now = Clock::now();
  connection->since = now;
  if (keep && !cut) {
    ++connection->served;
    connection->received.erase(0, connection->framing.end());
    if (connection->received.capacity() > kKeptBuffer) connection->received.shrink_to_fit();
    connection->framing = RequestFraming(limits_.max_body);
    connection->deadline = now + limits_.idle_timeout;
  } else {
    drain(*connection);
  }
  {
    const std::lock_guard lock(mutex_);
    serving_.erase(connection->socket);
    if (!stopped_) arrived_.push_back(std::move(connection));
  }
  served_.notify_all();
  if (connection != nullptr) return close(std::move(connection));
  wake();
}

// After the last answer: until the client closes, what it still sends is discarded.
void Connections::drain(Connection& connection) const {
  ::shutdown(connection.socket, SHUT_WR);
  connection.phase = Connection::Phase::kDrain;
  connection.received = {};
  connection.deadline = Clock::now() + kDrain;
}

// On the reading thread. The answer is short, and fits a socket's buffer.
void Connections::refuse(Owned connection, int status) {
  const std::string body = dump(error_of_refusal(status).json());
  const std::string answer = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", status,
      reason_of(status), body.size(), body);
  [[maybe_unused]] const auto ignored =
      ::send(connection->socket, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  drain(*connection);
  park(std::move(connection));
}

// The address with the most connections, or bytes, loses the oldest of them.
void Connections::make_room() {
  while (parked_.size() > limits_.max_connections || received_ > limits_.max_received) {
    const bool bytes = received_ > limits_.max_received;
    std::map<std::string_view, std::size_t> of_address;
    for (const Owned& each : parked_) of_address[each->address] += bytes ? each->received.size() : 1;
    const auto most = std::ranges::max_element(of_address, {}, [](const auto& each) { return each.second; });
    auto victim = parked_.end();
    for (auto at = parked_.begin(); at != parked_.end(); ++at) {
      if ((*at)->address != most->first || (bytes && (*at)->received.empty())) continue;
      if (victim == parked_.end() || (*at)->since < (*victim)->since) victim = at;
    }
    received_ -= (*victim)->received.size();
    close(std::move(*victim));
    parked_.erase(victim);
  }
}

}  // namespace palimpsest
