#include "palimpsest/text/conversation.h"

#include <gtest/gtest.h>

#include "tests/support/heap.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

class ConversationTest : public ::testing::Test {
 protected:
  void SetUp() override { vocabulary_ = Vocabulary::load(default_model()); }
  std::shared_ptr<const ChatTemplate> chat_template(const std::string& name) const {
    return ChatTemplate::load(vocabulary_, name);
  }
  std::shared_ptr<Vocabulary> vocabulary_;
};

TEST_F(ConversationTest, EveryTurnFollowsWhatWasReadAndAnswered) {
  for (const char* name : {"chatml", "llama3", "gemma", "phi3", "zephyr"}) {
    SCOPED_TRACE(name);
    Conversation conversation(chat_template(name), "");
    std::vector<ChatMessage> messages;
    std::string stream;
    for (const char* answer : {"one", " two\n", "three"}) {
      messages.push_back({"user", "and?"});
      const auto turn = conversation.user("and?");
      EXPECT_EQ(turn.restart, messages.size() == 1);
      stream += turn.text;
      const std::string read = chat_template(name)->text(messages);
      // The model reads the template's text, except for blanks around its own answers.
      EXPECT_EQ(stream.substr(stream.size() - turn.text.size()), read.substr(read.size() - turn.text.size()));
      stream += answer;
      conversation.assistant(answer);
      messages.push_back({"assistant", answer});
    }
    EXPECT_LT(stream.size(), chat_template(name)->text(messages, false).size() + 8);
  }
}

TEST_F(ConversationTest, ChatmlWordForWord) {
  Conversation conversation(chat_template("chatml"), "be kind");
  EXPECT_EQ(conversation.user("hi").text,
            "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  conversation.assistant("hello");
  const auto turn = conversation.user("bye");
  EXPECT_FALSE(turn.restart);
  EXPECT_EQ(turn.text, "<|im_end|>\n<|im_start|>user\nbye<|im_end|>\n<|im_start|>assistant\n");
  conversation.reset();
  EXPECT_TRUE(conversation.user("hi").restart);
}

// A conversation's memory must not grow with its turns.
TEST_F(ConversationTest, ManyTurnsTakeNoMemory) {
  for (const char* name : {"chatml", "llama3", "gemma", "phi3", "zephyr"}) {
    Conversation conversation(chat_template(name), "be kind");
    EXPECT_FALSE(conversation.keeps_messages()) << name;
  }
  Conversation conversation(chat_template("chatml"), "be kind");
  std::size_t settled = 0;
  std::string second, last;
  for (int turn = 1; turn <= 5000; ++turn) {
    last = conversation.user("and then, what came after that?").text;
    conversation.assistant("something else, " + std::string(static_cast<std::size_t>(turn % 97), 'x'));
    if (turn == 2) second = last;
    if (turn == 100) settled = heap_in_use();
  }
  EXPECT_EQ(last, second);
  EXPECT_LE(heap_in_use(), settled + 16384);
}

}  // namespace
}  // namespace palimpsest::testing
