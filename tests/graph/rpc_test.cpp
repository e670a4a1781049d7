// Models over two ggml RPC servers on loopback against the fast path, and servers that cannot be used. Skipped without
// ggml's RPC backend.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/graph/backends.h"
#include "palimpsest/graph/cpu/attention_op.h"
#include "palimpsest/graph/decoder.h"
#include "palimpsest/graph/device/portable.h"
#include "palimpsest/graph/device/portable_storage.h"
#include "palimpsest/graph/graph.h"
#include "palimpsest/model/backend.h"
#include "palimpsest/model/family.h"
#include "palimpsest/model/rpc.h"
#include "palimpsest/model/weights.h"
#include "tests/support/draws.h"
#include "tests/support/error_of.h"
#include "tests/support/random_tokens.h"
#include "tests/support/rpc_server.h"
#include "tests/support/teacher_forced.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

class RpcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_rpc(); !why.empty()) GTEST_SKIP() << why;
  }
};

std::shared_ptr<const Model> over_rpc(const std::string& name) {
  return Model::synthetic(name, {.rpc = two_rpc_servers(), .tensor_split = {1, 1}});
}

TEST_F(RpcTest, EqualsTheFastPath) {
  for (const auto& [name, type, bound] :
       {std::tuple{"tiny", CacheType::kF32, 1e-5}, std::tuple{"tiny-gemma3", CacheType::kF32, 1e-3},
        std::tuple{"tiny-qwen2", CacheType::kF16, 1.5e-3}}) {
    const std::shared_ptr<const Model> remote = over_rpc(name), local = Model::synthetic(name);
    const auto& of = remote->weights().device_of;
    EXPECT_TRUE(std::ranges::is_sorted(of));
    EXPECT_EQ(of.front(), 0);
    EXPECT_EQ(of.back(), 1);
    double worst = 0;
    Interleaved turn(long_tests() ? 1 : 4);
    for (const TeacherForced& kind : every_kind(20, type)) {
      if (type != CacheType::kF32 && kind.budget > 0 && kind.mechanism == Mechanism::kInPlace) continue;
      if (turn.next() != 0) continue;
      SCOPED_TRACE(kind.name);
      const auto tokens = random_text(kind.chunk > 1 ? 60 : 30, 5, local->hyper().vocabulary);
      const auto ours = run(remote, kind, tokens), theirs = run(local, kind, tokens);
      const double error = max_relative_error(ours.logits, theirs.logits, local->hyper().vocabulary);
      EXPECT_LE(error, bound);
      worst = std::max(worst, error);
      if (!theirs.weights.empty()) {
        EXPECT_LE(max_relative_error(ours.weights, theirs.weights, static_cast<int>(theirs.weights.size())),
                  std::max(bound, 1e-5));
      }
    }
    std::printf("%s: max relative error of a logit: %.1e\n", name, worst);
  }
}

// Decode steps over up to 256 tokens are one graph, which the servers receive once.
TEST_F(RpcTest, GraphsAreReused) {
  const auto model = over_rpc("tiny");
  Decoder decoder(model, 1);
  Cache cache(decoder.cache_options());
  for (int i = 0; i < 100; ++i) {
    cache.insert(1);
    const TokenId token = i;
    const SequenceStep step{.cache = &cache, .tokens = {&token, 1}};
    decoder.step({&step, 1});
  }
  EXPECT_EQ(decoder.graph_counts().built, 1);
  EXPECT_EQ(decoder.graph_counts().run, 100);
  EXPECT_GT(decoder.graph_bytes(), 0U);
}

// A server forgets its graphs when a buffer is freed; then they are planned again.
TEST_F(RpcTest, GraphsThatAServerForgotArePlannedAgain) {
  const auto model = over_rpc("tiny");
  Decoder decoder(model, 1);
  Cache cache(decoder.cache_options());
  const auto step = [&](Cache& one) {
    one.insert(1);
    const TokenId token = 5;
    const SequenceStep sequence{.cache = &one, .tokens = {&token, 1}};
    decoder.step({&sequence, 1});
  };
  for (int i = 0; i < 3; ++i) step(cache);
  { Model::synthetic("tiny", {.rpc = two_rpc_servers()}); }
  for (int i = 0; i < 3; ++i) step(cache);
  EXPECT_EQ(decoder.graph_counts().built, 2);
  EXPECT_EQ(decoder.graph_counts().run, 6);
}

#ifndef PALIMPSEST_SANITIZED  // AddressSanitizer ends a server that asks for too much memory
TEST_F(RpcTest, NoMemoryIsAnErrorThatNamesTheDevice) {
  const auto model = over_rpc("tiny");
  const Backends backends(*model, 1);
  PortablePath path(model->hyper(), backends);
  StoragePool pool(backends);
  PortableStorage storage(path.cache_options(model->hyper()), pool);
  const std::string error = error_of([&] { storage.reserve(1 << 30); });
  EXPECT_NE(error.find("no memory on device RPC"), std::string::npos) << error;
  storage.reserve(1);
  EXPECT_GT(storage.capacity(), 0);
}
#endif

TEST_F(RpcTest, CustomOperatorsAreRefused) {
  const auto model = over_rpc("tiny");
  const Backends backends(*model, 1);
  AttentionOp path(model->hyper(), 1);
  DecoderGraph graph;
  graph.tokens = graph.rows = 1;
  GraphMemory memory(backends.host());
  EXPECT_NE(error_of([&] { build_graph(graph, *model, path, backends, memory); }).find("custom operators"),
            std::string::npos);
}

// A layer on this machine, the others elsewhere.
TEST_F(RpcTest, TogetherWithTheCpu) {
  const std::string remote = add_rpc_servers(two_rpc_servers());
  const auto mixed = Model::synthetic("tiny", {.device = "cpu," + remote, .tensor_split = {1, 1, 1}});
  const auto local = Model::synthetic("tiny");
  const TeacherForced kind{.name = "full", .rule = {}, .chunk = 7};
  const auto tokens = random_text(40, 5, local->hyper().vocabulary);
  EXPECT_LE(
      max_relative_error(run(mixed, kind, tokens).logits, run(local, kind, tokens).logits, local->hyper().vocabulary),
      1e-5);
}

// A server that answers each connection with some bytes, or not at all.
class FalseServer {
 public:
  explicit FalseServer(std::vector<unsigned char> answer) : answer_(std::move(answer)) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    ::listen(socket_, 4);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      const int client = ::accept(socket_, nullptr, nullptr);
      std::array<char, 64> hello{};
      [[maybe_unused]] const auto got = ::recv(client, hello.data(), hello.size(), 0);
      [[maybe_unused]] const auto sent = ::send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      ::close(client);
    });
  }
  ~FalseServer() {
    thread_.join();
    ::close(socket_);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  std::vector<unsigned char> answer_;
  int socket_ = -1, port_ = 0;
  std::thread thread_;
};

TEST_F(RpcTest, ServersThatCannotBeUsed) {
  const auto error = [](const std::string& servers) {
    return error_of([&] { Model::synthetic("tiny", {.rpc = servers}); });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  for (const char* bad : {"127.0.0.1", "50052", ":50052", "::1:50052", "a:b:c"}) has(error(bad), "give HOST:PORT");
  for (const char* bad : {"127.0.0.1:", "127.0.0.1:0", "127.0.0.1:x", "127.0.0.1:70000"}) has(error(bad), "the port");
  has(error("no-such-host.invalid:50052"), "the host is unknown");
  has(error("127.0.0.1:" + std::to_string(free_local_port())), "cannot be reached (Connection refused)");

  std::vector<unsigned char> old(8 + 28);
  old[0] = 28, old[8] = 3, old[9] = 1;
  const FalseServer other_version(old);
  has(error(other_version.address()), "has protocol version 3.1, this program");
  const std::string text = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
  const FalseServer web({text.begin(), text.end()});
  has(error(web.address()), "answers something else: it is no ggml RPC server");
  const FalseServer silent({});
  has(error(silent.address()), "closed the connection: it is no ggml RPC server");
}

}  // namespace
}  // namespace palimpsest::testing
