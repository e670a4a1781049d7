#include "palimpsest/text/reply_reader.h"

#include <gtest/gtest.h>

#include "palimpsest/text/chat_template.h"
#include "tests/support/shared_dir.h"
#include "tests/support/templates.h"

namespace palimpsest::testing {
namespace {

class ReplyReaderTest : public ::testing::Test {
 protected:
  // The format of replies of a template without tools: calls are JSON between <tool_call> and </tool_call>.
  std::shared_ptr<const ReplyFormat> format(const std::string& source = "chatml", bool with_tools = true) const {
    const auto vocabulary = Vocabulary::load(default_model());
    ChatInput input{.messages = {{"user", "x"}}};
    if (with_tools) input.tools = {{"f", "", R"({"type":"object","properties":{"a":{"type":"string"}}})"}};
    return ChatTemplate::load(vocabulary, source)->apply(input).format;
  }
};

struct Whole {
  std::string content, reasoning;
  std::vector<ToolCall> calls;
  int steps_of_arguments = 0;
};

Whole read(const std::shared_ptr<const ReplyFormat>& format, const std::string& text, bool complete,
           std::size_t piece = 1) {
  Whole out;
  ReplyReader reader(format);
  const auto add = [&](const ReplyDelta& delta) {
    out.content += delta.content;
    out.reasoning += delta.reasoning;
    for (const ReplyDelta::Call& call : delta.calls) {
      if (call.index == out.calls.size()) out.calls.push_back({call.id, call.name, ""});
      out.calls.at(call.index).arguments += call.arguments;
      ++out.steps_of_arguments;
    }
  };
  for (std::size_t i = 0; i < text.size(); i += piece) add(reader.put(std::string_view(text).substr(i, piece)));
  add(reader.finish(complete));
  EXPECT_EQ(reader.has_calls(), !out.calls.empty());
  return out;
}

TEST_F(ReplyReaderTest, WithoutAFormatAllIsContent) {
  EXPECT_EQ(read(nullptr, "<tool_call>{}</tool_call>", true).content, "<tool_call>{}</tool_call>");
}

TEST_F(ReplyReaderTest, CallsAreStreamed) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"some words\"}}\n</tool_call>";
  for (const std::size_t piece : {1, 3, 7, 1000}) {
    const Whole one = read(format(), "Let me see.\n" + call, true, piece);
    EXPECT_EQ(one.content.substr(0, 11), "Let me see.");
    ASSERT_EQ(one.calls.size(), 1u);
    EXPECT_EQ(one.calls[0].name, "f");
    EXPECT_EQ(one.calls[0].id.size(), 9u);
    EXPECT_EQ(one.calls[0].arguments, R"({"a": "some words"})");
    EXPECT_EQ(one.content.find('{'), std::string::npos) << one.content;
    EXPECT_TRUE(piece > 1 || one.steps_of_arguments > 5) << one.steps_of_arguments;
  }
}

TEST_F(ReplyReaderTest, TextThatIsNoCallIsContent) {
  const std::string text = "No call, but <tool and < and {\"name\": 1}.";
  EXPECT_EQ(read(format(), text, true).content, text);
  EXPECT_EQ(read(format(), text, false).content, text);
}

TEST_F(ReplyReaderTest, WholeCharactersOnly) {
  const std::string text = "caf\xC3\xA9 \xF0\x9F\x8C\xA7 and so on";
  ReplyReader reader(format());
  std::string joined;
  for (const char c : text) {
    const std::string piece = reader.put(std::string_view(&c, 1)).content;
    EXPECT_TRUE(piece.empty() || (static_cast<unsigned char>(piece.front()) & 0xC0) != 0x80);
    joined += piece;
  }
  EXPECT_EQ(joined + reader.finish(true).content, text);
}

// The text may end anywhere: at max_tokens, for instance.
TEST_F(ReplyReaderTest, AReplyThatIsCutOffLosesNothingThatIsCertain) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"some words\"}}\n</tool_call>";
  const auto shape = format();
  for (std::size_t n = 0; n <= call.size(); ++n) {
    const Whole cut = read(shape, call.substr(0, n), false);
    if (n >= call.find("some")) {
      ASSERT_EQ(cut.calls.size(), 1u) << call.substr(0, n);
      EXPECT_EQ(cut.calls[0].name, "f");
      EXPECT_TRUE(std::string(R"({"a": "some words"})").starts_with(cut.calls[0].arguments)) << cut.calls[0].arguments;
    }
  }
}

TEST_F(ReplyReaderTest, ReasoningIsApart) {
  const auto path = template_path("Qwen-Qwen3-0.6B.jinja");
  if (!path) GTEST_SKIP() << "needs the chat templates of llama.cpp's source package";
  for (const bool tools : {false, true}) {
    const Whole one = read(format(*path, tools), "<think>\nWell, well.\n</think>\n\nIt is so.", true);
    EXPECT_NE(one.reasoning.find("Well, well."), std::string::npos);
    EXPECT_EQ(one.reasoning.find("think"), std::string::npos);
    EXPECT_EQ(one.content, "It is so.");
  }
}

// 64 KiB in single bytes: a second or so if every byte parsed all again.
TEST_F(ReplyReaderTest, WorkPerCharacterIsConstant) {
  std::string text;
  while (text.size() < (std::size_t{64} << 10)) text += "many words, ";
  const auto shape = format();
  EXPECT_EQ(read(shape, text, true).content, text);
}

}  // namespace
}  // namespace palimpsest::testing
