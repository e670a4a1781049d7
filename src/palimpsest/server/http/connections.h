// The clients' sockets. One thread reads requests from all of them; a request that has arrived whole is served on a
// thread of its own (request_threads.h), and its connection then waits here for the next one:
//
//   add -> waits for a request -> reads it -> served on a thread -> waits for the next, or closes
//              idle_timeout        head_timeout, min_rate              drains first, so that the answer arrives
//
// So clients that send nothing, or slowly, take a socket and the bytes they sent, never a thread. Where sockets or
// bytes run out, the address that has most of them loses its oldest connection. Why:
// docs/decisions/0039-connections.md.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "palimpsest/server/http/request_framing.h"
#include "palimpsest/server/http/request_threads.h"

namespace palimpsest {

struct ConnectionLimits {
  std::size_t max_threads = 64, max_waiting = 1024;   // requests that are served; whole requests that wait
  std::size_t max_connections = 4096;                 // that are not being served; see max_open_connections()
  std::size_t max_body = std::size_t{8} << 20;        // bytes of a request's body
  std::size_t max_received = std::size_t{128} << 20;  // bytes of requests that are not whole
  std::size_t min_rate = std::size_t{16} << 10;       // bytes of a body per second, beyond body_timeout
  std::chrono::milliseconds idle_timeout{60'000};     // between requests
  std::chrono::milliseconds head_timeout{10'000};     // from a connection's, or a request's, first byte
  std::chrono::milliseconds body_timeout{30'000};     // from the head's end
};

struct Connection {
  enum class Phase { kRequest, kDrain };

  Connection(int socket, std::string address, int port, std::size_t max_body)
      : socket(socket), address(std::move(address)), port(port), framing(max_body) {}

  int socket;
  std::string address;  // of the client
  int port;
  std::string received;  // the request, up to framing.end(), and what follows it
  RequestFraming framing;
  Phase phase = Phase::kRequest;
  int served = 0;           // requests
  std::size_t drained = 0;  // bytes that were discarded
  std::chrono::steady_clock::time_point since, deadline;
};

class Connections {
 public:
  // Serves the whole request; true: the connection may have another one. Called on many threads.
  using Serve = std::function<bool(Connection& connection)>;
  // Whether a request, given by its first bytes, is served from the reserve of threads.
  using Urgent = std::function<bool(std::string_view request)>;

  Connections(const ConnectionLimits& limits, Serve serve, Urgent urgent);  // throws Error
  ~Connections() { stop(); }

  void add(int socket);  // takes ownership
  // Closes all connections: those that are being served after `kLastAnswers` at the latest.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  using Owned = std::unique_ptr<Connection>;

  void run();
  void park(Owned connection);  // on the reading thread: waits for a request, or dispatches the one that is there
  void receive(std::list<Owned>::iterator at);
  void advance(std::list<Owned>::iterator at);  // after more bytes were received
  void dispatch(Owned connection);
  void serve(Owned connection);
  void drain(Connection& connection) const;
  void refuse(Owned connection, int status);
  void close(Owned connection);
  void make_room();
  void wake();

  const ConnectionLimits limits_;
  const Serve serve_;
  const Urgent urgent_;

  std::list<Owned> parked_;   // of the reading thread
  std::size_t received_ = 0;  // bytes of the parked ones

  std::mutex mutex_;  // guards the members below
  std::vector<Owned> arrived_;
  std::set<int> serving_;  // their sockets
  std::condition_variable served_;
  bool stopped_ = false;

  int wake_read_ = -1, wake_write_ = -1;
  RequestThreads threads_;
  std::thread reader_;  // declared last: it uses the members above
};

// How many connections this process may have: raises the soft limit of open files to the hard one if that is needed.
std::size_t max_open_connections(std::size_t wanted);

}  // namespace palimpsest
