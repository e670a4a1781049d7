// Unix sockets, files of API keys, systemd's notifications.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "palimpsest/server/http/api_keys.h"
#include "palimpsest/server/http/systemd.h"
#include "tests/server/server_fixture.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

class ReadyTest : public ::testing::Test {
 protected:
  ReadyTest() : folder_(std::filesystem::temp_directory_path() / ("palimpsest-" + std::to_string(::getpid()))) {
    std::filesystem::create_directory(folder_);
  }
  ~ReadyTest() override { std::filesystem::remove_all(folder_); }
  std::string in_folder(const char* name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

// A bound socket; -1: it failed.
int bound_socket(const std::string& path, int type) {
  const int socket = ::socket(AF_UNIX, type, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? socket : -1;
}

TEST_F(ReadyTest, ServesOnAUnixSocket) {
  const std::string path = in_folder("s.sock");
  for (const std::string& host : {"unix:" + path, path}) {
    const int stale = bound_socket(path, SOCK_STREAM);  // as a server that was killed leaves it
    ASSERT_GE(stale, 0);
    ::close(stale);
    ServerSetup setup;
    setup.server.host = host;
    {
      Running running(setup);
      EXPECT_EQ(running.server().url(), "unix:" + path);
      httplib::Client client(path);
      client.set_address_family(AF_UNIX);
      const auto health = client.Get("/health");
      ASSERT_TRUE(health) << httplib::to_string(health.error());
      EXPECT_EQ(health->status, 200);
      const Json body = {{"prompt", "Once"}, {"max_tokens", 3}};
      EXPECT_EQ(client.Post(kText, body.dump(), "application/json")->status, 200);
      EXPECT_NE(error_of([&] { Running second(setup); }).find("another server listens"), std::string::npos);
      EXPECT_EQ(client.Get("/health")->status, 200) << "the second one must not take the socket away";
    }
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  ServerSetup nowhere;
  nowhere.server.host = "unix:/nowhere/s.sock";
  EXPECT_NE(error_of([&] { Running running(nowhere); }).find("cannot be created"), std::string::npos);
}

TEST_F(ReadyTest, ReadsKeysFromAFile) {
  const std::string path = in_folder("keys");
  std::ofstream(path) << "first\n\n  second \r\nthird with spaces";
  EXPECT_EQ(read_api_keys(path), (std::vector<std::string>{"first", "second", "third with spaces"}));
  std::ofstream(path) << " \n";
  EXPECT_NE(error_of([&] { read_api_keys(path); }).find("has no API key"), std::string::npos);
  EXPECT_NE(error_of([&] { read_api_keys("/nowhere"); }).find("/nowhere"), std::string::npos);
}

TEST_F(ReadyTest, TellsSystemd) {
  const std::string path = in_folder("notify");
  const int socket = bound_socket(path, SOCK_DGRAM);
  ASSERT_GE(socket, 0);
  ::unsetenv("NOTIFY_SOCKET");
  notify_systemd("READY=1");
  char text[64];
  EXPECT_EQ(::recv(socket, text, sizeof text, MSG_DONTWAIT), -1);
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  notify_systemd("READY=1");
  const auto got = ::recv(socket, text, sizeof text, MSG_DONTWAIT);
  ::unsetenv("NOTIFY_SOCKET");
  ::close(socket);
  ASSERT_GT(got, 0);
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(got)), "READY=1");
}

}  // namespace
}  // namespace palimpsest::testing
