// --device, --tensor-split, --rpc and rpc-server on the command line.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/apps/command.h"
#include "tests/support/rpc_server.h"

namespace palimpsest::testing {
namespace {

class Devices : public WithDefaultModel {};

TEST_F(Devices, BadDevicesAreOneErrorThatSaysWhatToDo) {
  expect_refused(on({"run", "-n", "1", "--device", "cpu,abacus"}), "there are: cpu");
  expect_refused(on({"run", "-n", "1", "--device", "cpu,cpu"}), "named twice");
  expect_refused(on({"run", "-n", "1", "--tensor-split", "1,1"}), "2 numbers for 1 devices (cpu)");
  expect_refused(on({"run", "-n", "1", "--tensor-split", "1,x"}), "--tensor-split");
  expect_refused(on({"run", "-n", "1", "--tensor-split", "-1"}), "--tensor-split");
}

class RpcCommand : public Devices {
 protected:
  void SetUp() override {
    Devices::SetUp();
    if (command({"info", "--devices", "--rpc", "127.0.0.1:1"}).err.find("not installed") != std::string::npos)
      GTEST_SKIP() << "needs ggml's RPC backend (Debian: libggml0-backend-rpc)";
    for (auto* server : {&first_, &second_}) {
      const std::string port = std::to_string(free_local_port());
      *server = std::make_unique<Subprocess>(command_path(), Words{"rpc-server", "--port", port, "-t", "1"});
      servers_ += (servers_.empty() ? "" : ",") + ("127.0.0.1:" + port);
    }
    for (int tries = 0; tries < 100 && command({"info", "--devices", "--rpc", servers_}).code != 0; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  std::unique_ptr<Subprocess> first_, second_;
  std::string servers_;
};

TEST_F(RpcCommand, WritesTheSameText) {
  const Words words = {"--raw", "-p", "Once upon a time", "-n", "30", "--temp", "0", "--method", "streaming:budget=24"};
  Words remote = words;
  remote.insert(remote.end(), {"--rpc", servers_, "--tensor-split", "1,1"});
  const Finished there = run(remote), here = run(words);
  EXPECT_EQ(there.code, 0) << there.err;
  EXPECT_EQ(there.out, here.out);

  const auto listed = nlohmann::json::parse(command({"info", "--devices", "--json", "--rpc", servers_}).out);
  EXPECT_EQ(listed.back()["name"], "RPC1");
  EXPECT_GT(listed.back()["memory_total"], 0);
  const auto model =
      nlohmann::json::parse(command({"info", model_, "--json", "--rpc", servers_, "--tensor-split", "1,1"}).out);
  EXPECT_EQ(model["devices"].size(), 2U);
  EXPECT_EQ(model["devices"][0]["layers"][0], 0);
  EXPECT_EQ(model["devices"][1]["layers"][1], layers_ - 1);

  expect_refused(on({"run", "--lookup", "--method", "h2o:every=16", "--rpc", servers_}),
                 "--portable, --device and --rpc");
  expect_refused({"rpc-server", "--port", servers_.substr(servers_.rfind(':') + 1)}, "cannot listen");
}

TEST_F(RpcCommand, AServerThatEndsDuringARunIsOneError) {
  Subprocess client(command_path(), on({"run", "-p", "Once", "-n", "100000", "--ignore-eos", "--rpc", servers_}),
                    {{"PALIMPSEST_MODEL", ""}});
  ASSERT_TRUE(client.wait_for_output(200)) << client.err();
  second_->signal(SIGKILL);
  const Finished done = client.wait();
  EXPECT_EQ(done.code, 2) << done.err;
  const std::string lost = servers_.substr(servers_.find(',') + 1);
  const std::string error = done.err.substr(done.err.rfind("palimpsest: error: "));
  EXPECT_NE(error.find("the connection to RPC server " + lost + " broke"), std::string::npos) << done.err;
  EXPECT_EQ(error.find('\n'), error.size() - 1) << done.err;
  EXPECT_EQ(done.err.find("ggml"), std::string::npos) << done.err;
  expect_refused(on({"run", "-n", "1", "--rpc", servers_}), lost + " cannot be reached");
}

TEST_F(RpcCommand, AnAddressBeyondLoopbackIsAWarning) {
  Subprocess open(command_path(), {"rpc-server", "--host", "0.0.0.0", "--port", std::to_string(free_local_port())});
  EXPECT_TRUE(open.wait_for_error_text("warning: --host 0.0.0.0: whoever reaches this port can run code"));
  open.signal(SIGTERM);
  EXPECT_EQ(first_->err(), "");
  expect_refused({"rpc-server", "--host", "example.com"}, "give an IPv4 address");
}

}  // namespace
}  // namespace palimpsest::testing
