// The errors of docs/common-errors.md that the server answers. Those of the command: tests/apps.
#include "tests/support/common_errors.h"
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

TEST(CommonServerErrors, PromptTooLong) {
  ServerSetup setup;
  setup.scheduler.pool_bytes = std::size_t{2} << 20;
  const Running running(setup);
  std::string prompt;
  for (int i = 0; i < 2000; ++i) prompt += " cat";
  const auto [status, message] = running.refusal(kText, {{"prompt", prompt}, {"cache", "full"}});
  EXPECT_EQ(status, 400);
  expect_quoted(message);
}

TEST(CommonServerErrors, NoChatTemplate) {
  ServerSetup setup;
  setup.chat_template = "";
  const Running running(setup);
  const auto [status, message] = running.refusal(kChat, {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}});
  EXPECT_EQ(status, 400);
  expect_quoted(message);
}

}  // namespace
}  // namespace palimpsest::testing
