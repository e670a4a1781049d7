// Sockets of clients that send nothing, slowly, too much or nonsense: nobody else waits for them.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "palimpsest/server/http/connections.h"
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

using namespace std::chrono_literals;
using State = RequestFraming::State;

class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    const timeval patience{.tv_sec = 30, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  RawClient(RawClient&& other) noexcept : socket_(std::exchange(other.socket_, -1)), connected_(other.connected_) {}
  ~RawClient() {
    if (socket_ >= 0) ::close(socket_);
  }
  bool connected() const { return connected_; }
  bool send(std::string_view bytes) {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // Until `end` was received or the server closes.
  std::string receive(std::string_view end = "\xff") {
    std::string all;
    char bytes[4096];
    while (all.find(end) == std::string::npos) {
      const auto count = ::recv(socket_, bytes, sizeof bytes, 0);
      if (count <= 0) break;
      all.append(bytes, static_cast<std::size_t>(count));
    }
    return all;
  }

 private:
  int socket_;
  bool connected_ = false;
};

double seconds_of(const std::function<void()>& action) {
  const auto start = Clock::now();
  action();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string post(std::string_view path, std::string_view body, std::string_view headers = "") {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", path,
      body.size(), headers, body);
}

// All ways to cut a request's bytes into two pieces, and byte by byte: the same end.
TEST(RequestFraming, FindsTheEndHoweverTheBytesArrive) {
  struct Case {
    std::string bytes;
    State state;
    std::size_t rest;  // bytes behind the request
  };
  const std::string get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n", head = "POST / HTTP/1.1\r\n";
  for (const Case& each : {
           Case{get, State::kWhole, 0},
           Case{"\r\n\r\n" + get, State::kWhole, 0},
           Case{get + get, State::kWhole, get.size()},
           Case{head + "content-LENGTH:  5 \r\n\r\nhello" + get, State::kWhole, get.size()},
           Case{head + "Content-Length: 5\r\n\r\nhell", State::kBody, 0},
           Case{head + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", State::kWhole, 0},
           Case{head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", State::kBad, 0},
           Case{head + "Content-Length: -1\r\n\r\n", State::kBad, 0},
           Case{head + "Content-Length: 0x5\r\n\r\nhello", State::kBad, 0},
           Case{head + "Content-Length: 99999999999999999999999\r\n\r\n", State::kBad, 0},
           Case{head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n" + get,
                State::kWhole, get.size()},
           Case{head + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n", State::kWhole, 0},
           Case{head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", State::kBody, 0},
           Case{head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX", State::kBad, 0},
           Case{head + "Transfer-Encoding: chunked\r\n\r\nz\r\n", State::kBad, 0},
           Case{head + "Transfer-Encoding: gzip, chunked\r\n\r\n", State::kBad, 0},
           Case{head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello", State::kBad, 0},
           Case{"GET /", State::kHead, 0},
           Case{"\r\n", State::kEmpty, 0},
       }) {
    SCOPED_TRACE(each.bytes);
    for (std::size_t cut = 0; cut <= each.bytes.size(); ++cut) {
      RequestFraming framing(1000);
      std::string received = each.bytes.substr(0, cut);
      framing.read(received);
      const bool decided = framing.state() == State::kWhole || framing.state() == State::kBad;
      received += each.bytes.substr(cut);
      if (!decided) framing.read(received);
      ASSERT_EQ(framing.state(), each.state) << cut;
      if (each.state == State::kWhole) {
        EXPECT_EQ(received.size() - framing.end(), each.rest) << cut;
      }
    }
    RequestFraming framing(1000);
    std::string received;
    for (const char byte : each.bytes) {
      received += byte;
      if (const State state = framing.read(received); state == State::kWhole || state == State::kBad) break;
    }
    EXPECT_EQ(framing.state(), each.state);
  }
}

TEST(RequestFraming, LongOnesAreCut) {
  RequestFraming framing(10);
  std::string body = "POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\nhell";
  EXPECT_EQ(framing.read(body), State::kCut);
  EXPECT_EQ(framing.end(), body.size());
  RequestFraming chunks(10);
  std::string chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nB\r\n";
  EXPECT_EQ(chunks.read(chunked), State::kCut);
  RequestFraming many(10);
  std::string small = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (std::size_t i = 0; i < RequestFraming::kMaxHead; ++i) small += "1\r\nx\r\n";
  EXPECT_EQ(many.read(small), State::kCut);
  RequestFraming head(10);
  std::string long_head = "GET / HTTP/1.1\r\nX: " + std::string(RequestFraming::kMaxHead, 'x');
  EXPECT_EQ(head.read(long_head), State::kTooLong);
}

// Hundreds of connections whose head never ends; the second round with a key, which they do not have.
TEST(Connections, ManyThatSendNothingHoldUpNobody) {
  for (const bool key : {false, true}) {
    ServerSetup setup;
    if (key) setup.server.api_keys = {"secret"};
    Running server(setup);
    std::vector<RawClient> silent;
    for (int i = 0; i < 450; ++i) {
      silent.emplace_back(server.port());
      ASSERT_TRUE(silent.back().connected()) << i;
      if (i % 3 != 0) {
        ASSERT_TRUE(silent.back().send("GET /health HTTP/1.1\r\nX-Slow: ")) << i;
      }
    }
    EXPECT_LT(seconds_of([&] { EXPECT_EQ(server.client().Get("/health")->status, 200); }), 1);
    EXPECT_LT(seconds_of([&] {
                const auto done = server.client().Post(kText, {{"Authorization", "Bearer secret"}},
                                                       R"({"prompt":"x","max_tokens":1})", "application/json");
                EXPECT_EQ(done->status, 200) << done->body;
              }),
              5);
    EXPECT_TRUE(silent.back().send("x")) << "within its time it may go on";
  }
}

TEST(Connections, SlowBodiesHoldUpNobodyAndEnd) {
  ServerSetup setup;
  setup.server.io_timeout = 400ms;
  Running server(setup);
  std::vector<RawClient> slow;
  for (int i = 0; i < 200; ++i) {
    slow.emplace_back(server.port());
    ASSERT_TRUE(slow.back().send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"));
  }
  EXPECT_LT(seconds_of([&] { EXPECT_EQ(server.client().Get("/v1/models")->status, 200); }), 1);
  const std::string answer = slow.front().receive();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 408 ")) << answer;
  EXPECT_NE(answer.find("did not arrive in time"), std::string::npos) << answer;
  RawClient idle(server.port());
  EXPECT_EQ(idle.receive(), "") << "a connection that asks nothing is closed";
}

// A byte now and then is no way to stay for ever.
TEST(Connections, TricklingHeadsEnd) {
  ServerSetup setup;
  setup.server.io_timeout = 500ms;
  Running server(setup);
  RawClient client(server.port());
  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nX: "));
  EXPECT_LT(seconds_of([&] {
              for (int i = 0; i < 200 && client.send("x"); ++i) std::this_thread::sleep_for(50ms);
            }),
            8);
}

TEST(Connections, TheServerStopsWhileBodiesArrive) {
  ServerSetup setup;
  setup.server.shutdown_timeout = 1000ms;
  auto server = std::make_unique<Running>(setup);
  std::vector<RawClient> slow;
  for (int i = 0; i < 20; ++i) {
    slow.emplace_back(server->port());
    ASSERT_TRUE(slow.back().send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"));
  }
  std::atomic<bool> stop = false;
  std::thread trickle([&] {
    while (!stop) {
      for (RawClient& each : slow) each.send(" ");
      std::this_thread::sleep_for(20ms);
    }
  });
  EXPECT_LT(seconds_of([&] { server.reset(); }), 3);
  stop = true;
  trickle.join();
}

TEST(Connections, ARefusedConnectionIsClosed) {
  ServerSetup setup;
  setup.server.api_keys = {"secret"};
  setup.server.io_timeout = 500ms;
  Running server(setup);
  RawClient whole(server.port()), partial(server.port());
  const std::string request = post(kText, R"({"prompt":"x"})");
  ASSERT_TRUE(whole.send(request));
  ASSERT_TRUE(partial.send(request.substr(0, request.size() - 3)));
  EXPECT_LT(seconds_of([&] {
              EXPECT_TRUE(whole.receive().starts_with("HTTP/1.1 401 "));
              EXPECT_TRUE(partial.receive().starts_with("HTTP/1.1 408 "));
            }),
            5);
}

TEST(Connections, NonsenseIsAnsweredOnceAndClosed) {
  Running server;
  const auto answer = [&](const std::string& bytes) {
    RawClient client(server.port());
    client.send(bytes);
    return client.receive();
  };
  EXPECT_TRUE(answer("POST /v1/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n").starts_with("HTTP/1.1 400 "));
  EXPECT_TRUE(answer("POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc")
                  .starts_with("HTTP/1.1 400 "));
  EXPECT_TRUE(answer("GET / HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n").starts_with("HTTP/1.1 431 "));
  EXPECT_TRUE(answer("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
  const std::string cut = answer(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 99999999\r\n\r\n{");
  EXPECT_TRUE(cut.starts_with("HTTP/1.1 413 ")) << cut;
  EXPECT_NE(cut.find("--max-body"), std::string::npos) << cut;
}

TEST(Connections, RequestsFollowEachOtherOnOne) {
  Running server;
  RawClient client(server.port());
  const std::string get = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_TRUE(client.send(get + get + "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
  const std::string all = client.receive();
  std::size_t count = 0;
  for (auto at = all.find("HTTP/1.1 200 OK"); at != all.npos; at = all.find("HTTP/1.1 200 OK", at + 1)) ++count;
  EXPECT_EQ(count, 3u) << all;
  RawClient waits(server.port());
  ASSERT_TRUE(
      waits.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "Expect: 100-continue\r\nContent-Length: 15\r\n\r\n"));
  EXPECT_EQ(waits.receive("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(waits.send(R"({"content":"x"})"));
  const std::string answer = waits.receive("\"count\"");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK")) << answer;
}

TEST(Connections, TheAddressWithMostLosesItsOldest) {
  const ConnectionLimits limits{.max_threads = 2, .max_waiting = 4, .max_connections = 8};
  Connections connections(
      limits, [](Connection&) { return true; }, [](std::string_view) { return false; });
  std::vector<int> ours;
  for (int i = 0; i < 12; ++i) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    connections.add(pair[0]);
    ours.push_back(pair[1]);
    std::this_thread::sleep_for(5ms);
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    char byte = 0;
    ssize_t got = -2;
    for (int tries = 0; tries < 100 && i < 4 && got != 0; ++tries, std::this_thread::sleep_for(10ms))
      got = ::recv(ours[i], &byte, 1, MSG_DONTWAIT);
    if (i >= 4) got = ::recv(ours[i], &byte, 1, MSG_DONTWAIT);
    EXPECT_EQ(got == 0, i < 4) << i;
  }
  connections.stop();
  for (const int each : ours) ::close(each);
}

}  // namespace
}  // namespace palimpsest::testing
