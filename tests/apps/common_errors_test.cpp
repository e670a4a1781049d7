// The errors of docs/common-errors.md, as the command prints them. Those of the server: tests/server.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/apps/command.h"
#include "tests/support/common_errors.h"

namespace palimpsest::testing {
namespace {

// The one line on standard error, with `file` as the page calls it.
void expect_page_has(const Finished& done, const std::string& file = {}, const std::string& name = {}) {
  EXPECT_EQ(done.code, 2);
  EXPECT_EQ(done.out, "");
  std::string line = done.err;
  ASSERT_TRUE(line.ends_with("\n"));
  line.pop_back();
  EXPECT_EQ(line.find('\n'), line.npos) << line;
  if (const auto at = file.empty() ? line.npos : line.find(file); at != line.npos) line.replace(at, file.size(), name);
  expect_quoted(line);
}

TEST(CommonErrors, NoModel) {
  const auto alone = std::filesystem::path(write_file("palimpsest-alone", "").string());
  std::filesystem::copy_file(command_path(), alone, std::filesystem::copy_options::overwrite_existing);
  expect_page_has(run_program(alone.string(), {"run"}, "", {{"PALIMPSEST_MODEL", ""}}));
  expect_page_has(command({"run", "-m", "/nowhere/nowhere.gguf"}), "/nowhere/nowhere.gguf", "nowhere.gguf");
  expect_page_has(command({"run", "-m", "smolm2"}));
  expect_page_has(command({"run", "-m", "smollm2"}));
}

TEST(CommonErrors, NotAModel) {
  const std::string path = write_file("notes.txt", "Remember the milk.").string();
  expect_page_has(command({"run", "-m", path}), path, "notes.txt");
}

TEST(CommonErrors, NotEnoughMemory) {
  expect_page_has(command({"run", "-m", default_model(), "--method", "full", "-n", "1000000000000"}, "Once"));
}

TEST(CommonErrors, PortInUse) {
  const int taken = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(taken, reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(taken, 1), 0);
  ASSERT_EQ(::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size), 0);
  expect_page_has(command({"serve", "-m", default_model(), "--port", std::to_string(ntohs(address.sin_port))}));
  ::close(taken);
}

}  // namespace
}  // namespace palimpsest::testing
