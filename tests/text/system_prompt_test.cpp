#include "palimpsest/text/system_prompt.h"

#include <gtest/gtest.h>

#include "tests/support/shared_dir.h"
#include "tests/support/templates.h"

namespace palimpsest::testing {
namespace {

const std::vector<ChatMessage> kSystem = {{"system", "You are a lighthouse keeper."}};
const std::vector<Tool> kTools = {{"find_ship", "Finds a ship", R"({"type":"object","properties":{}})"}};

class SystemPromptTest : public ::testing::Test {
 protected:
  void SetUp() override { vocabulary_ = Vocabulary::load(default_model()); }
  // The text of the chat's first tokens.
  std::string head(const std::string& name, const ChatInput& chat) const {
    const auto loaded = ChatTemplate::load(vocabulary_, name);
    const auto prompt = vocabulary_->tokenize(loaded->apply(chat).text, true, true);
    const std::size_t count = system_prompt_tokens(*loaded, *vocabulary_, chat, prompt);
    EXPECT_LE(count, prompt.size());
    return vocabulary_->detokenize(std::span(prompt).first(count), true);
  }
  ChatInput chat(std::vector<ChatMessage> begin, int turns) const {
    ChatInput out{.messages = std::move(begin)};
    for (int i = 0; i < turns; ++i) {
      if (i > 0) out.messages.push_back({"assistant", "Yes."});
      out.messages.push_back({"user", "Is there a ship?"});
    }
    return out;
  }
  std::shared_ptr<Vocabulary> vocabulary_;
};

TEST_F(SystemPromptTest, IsTheSameInEveryTurn) {
  for (const char* name : {"chatml", "llama3", "gemma", "phi3", "zephyr"}) {
    SCOPED_TRACE(name);
    const std::string first = head(name, chat(kSystem, 1));
    EXPECT_NE(first.find("You are a lighthouse keeper."), std::string::npos) << first;
    EXPECT_EQ(first.find("ship"), std::string::npos) << first;
    EXPECT_EQ(head(name, chat(kSystem, 2)), first);
    EXPECT_EQ(head(name, chat(kSystem, 5)), first);
    EXPECT_EQ(head(name, chat({}, 2)), "");
  }
}

TEST_F(SystemPromptTest, HasTheTools) {
  int checked = 0;
  for (const TemplateFamily& family : template_families()) {
    const auto path = template_path(family.file);
    if (!path || family.tools != 2) continue;
    SCOPED_TRACE(family.family);
    ChatInput first = chat(kSystem, 1), later = chat(kSystem, 3);
    first.tools = later.tools = kTools;
    const std::string text = head(*path, first);
    EXPECT_EQ(head(*path, later), text);
    if (std::string(family.family) == "Mistral") continue;  // with the last message of the user
    ++checked;
    EXPECT_NE(text.find("find_ship"), std::string::npos) << text;
    EXPECT_EQ(text.find("Is there"), std::string::npos) << text;
  }
  if (checked == 0) GTEST_SKIP() << "the templates of llama.cpp's source package are not there";
}

}  // namespace
}  // namespace palimpsest::testing
