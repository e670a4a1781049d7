// palimpsest chat on a terminal: keys are typed under tmux, and the screen is captured.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/apps/command.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

class ChatTerminal : public WithDefaultModel {
 protected:
  void SetUp() override {
    WithDefaultModel::SetUp();
    if (tmux({"-V"}).code != 0) GTEST_SKIP() << "tmux is not installed";
    fs::create_directories(scratch_);
  }
  ~ChatTerminal() override {
    tmux({"kill-server"});
    fs::remove_all(scratch_);
  }

  Finished tmux(const Words& words) const {
    Words all = {"tmux", "-u", "-f", "/dev/null", "-L", "palimpsest-" + std::to_string(::getpid())};
    all.insert(all.end(), words.begin(), words.end());
    return run_program("/usr/bin/env", all, {},
                       {{"LC_ALL", "C.UTF-8"},
                        {"XDG_STATE_HOME", scratch_},
                        {"TMUX", ""},
                        {"PALIMPSEST_MODEL", ""},
                        {"PALIMPSEST_MODELS", scratch_ + "/models"},
                        {"PIP_INDEX_URL", "http://127.0.0.1:9/simple"}});
  }
  void start(const Words& more = {}) {
    Words words =
        on({"chat", "--chat-template", "chatml", "--temp", "0", "-n", "12", "--method", "streaming:budget=32"});
    words.insert(words.end(), more.begin(), more.end());
    Words all = {"new-session", "-d", "-x", "120", "-y", "50", command_path()};
    all.insert(all.end(), words.begin(), words.end());
    const Finished begun = tmux(all);
    ASSERT_EQ(begun.code, 0) << begun.err;
    wait_for("\n>");
    if (screen().find("Up and Down: history") == std::string::npos)
      GTEST_SKIP() << "the program was built without libedit: it reads lines without editing";
  }
  void type(const std::string& text) { tmux({"send-keys", "-l", text}); }
  void press(const std::string& key) { tmux({"send-keys", key}); }
  void enter(const std::string& text) {
    type(text);
    press("Enter");
  }
  std::string screen() const { return tmux({"capture-pane", "-p"}).out; }
  void wait_for(const std::string& text) {
    for (int i = 0; i < 600; ++i) {
      if (("\n" + screen()).find(text) != std::string::npos) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    FAIL() << "'" << text << "' is not on the screen:\n" << screen();
  }
  // An answer is complete when a later command is.
  void settle() {
    tmux({"clear-history"});
    enter("/nosuch" + std::to_string(++settled_));
    wait_for("unknown command '/nosuch" + std::to_string(settled_) + "'");
  }
  nlohmann::json saved() {
    const std::string path = scratch_ + "/talk.json";
    enter("/save " + path);
    wait_for("messages saved)");
    settle();
    std::ifstream file(path);
    return nlohmann::json::parse(file, nullptr, false);
  }

  const std::string scratch_ = own_file("terminal");
  int settled_ = 0;
};

TEST_F(ChatTerminal, LinesAreEditedAndRecalled) {
  start();
  if (IsSkipped() || HasFatalFailure()) return;
  type("Hellx");
  press("BSpace");
  enter("o there");
  settle();
  press("Up");
  press("Up");
  wait_for("> Hello there");
  press("C-u");
  enter("/memory");
  wait_for("in all");
  EXPECT_NE(screen().find("full cache"), std::string::npos) << screen();
  const auto talk = saved();
  ASSERT_EQ(talk["messages"].size(), 2u) << talk;
  EXPECT_EQ(talk["messages"][0]["content"], "Hello there");
  enter("/exit");
}

// Without a model: a real one is offered until it is declined. The package index cannot be reached here.
TEST_F(ChatTerminal, AModelIsOfferedOnce) {
  const auto begin = [&] {
    tmux({"kill-server"});
    const Finished begun = tmux({"new-session", "-d", "-x", "120", "-y", "50", command_path(), "chat", "-t", "1", "-n",
                                 "4", "--chat-template", "chatml"});
    ASSERT_EQ(begun.code, 0) << begun.err;
  };
  begin();
  wait_for("[Y/n]");
  EXPECT_NE(screen().find("SmolLM2 135M Instruct, Q4_1 (98.4 MB, Apache-2.0)"), std::string::npos) << screen();
  enter("");
  wait_for("\n>");  // the default model
  EXPECT_NE(screen().find("127.0.0.1 cannot be reached"), std::string::npos) << screen();
  begin();
  wait_for("[Y/n]");
  enter("n");
  wait_for("\n>");
  begin();
  wait_for("\n>");
  EXPECT_EQ(screen().find("[Y/n]"), std::string::npos) << screen();
}

TEST_F(ChatTerminal, PastedLinesAreOneMessage) {
  start();
  if (IsSkipped() || HasFatalFailure()) return;
  tmux({"set-buffer", "first line\nsecond line\nthird"});
  tmux({"paste-buffer", "-p"});
  wait_for("third");
  press("Enter");
  settle();
  const auto talk = saved();
  ASSERT_EQ(talk["messages"].size(), 2u) << talk;
  EXPECT_EQ(talk["messages"][0]["content"], "first line\nsecond line\nthird");
  press("C-l");
  enter("/edit");  // offers all three lines
  wait_for("\nthird");
  enter("!");
  settle();
  const auto edited = saved();
  ASSERT_EQ(edited["messages"].size(), 2u) << edited;
  EXPECT_EQ(edited["messages"][0]["content"], "first line\nsecond line\nthird!");
  enter("/exit");
}

TEST_F(ChatTerminal, ALongMessageShowsWhatWasReadUntilTheAnswer) {
  start();
  if (IsSkipped() || HasFatalFailure()) return;
  std::string words;
  for (int i = 0; i < 600; ++i) words += "dog ";
  const std::string written = scratch_ + "/written";  // all that the terminal got
  tmux({"pipe-pane", "-o", "cat > '" + written + "'"});
  tmux({"set-buffer", words + "."});
  tmux({"paste-buffer", "-p"});
  wait_for("g .");
  press("Enter");
  wait_for("\n>\n");
  EXPECT_EQ(screen().find("reading"), std::string::npos) << screen();
  std::ifstream file(written, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(bytes.find("\rreading  6"), std::string::npos) << bytes.size();
  EXPECT_NE(bytes.find(" tokens\x1b[K"), std::string::npos) << bytes.size();
  enter("/exit");
}

TEST_F(ChatTerminal, UndoEditMethodAndBudget) {
  start();
  if (IsSkipped() || HasFatalFailure()) return;
  enter("One");
  settle();
  enter("Two");
  settle();
  enter("/undo");
  wait_for("(taken back: Two)");
  enter("/edit");  // offers the last message
  wait_for("> One");
  enter(" more");
  settle();
  enter("/budget 24");
  wait_for("(now streaming");
  enter("/method h2o:budget=40");
  wait_for("(now h2o:budget=40; ");
  enter("And?");
  settle();
  const auto talk = saved();
  ASSERT_EQ(talk["messages"].size(), 4u) << talk;
  EXPECT_EQ(talk["messages"][0]["content"], "One more");
  EXPECT_EQ(talk["messages"][2]["content"], "And?");
  enter("/reset");
  wait_for("(forgotten)");
  enter("/load " + scratch_ + "/talk.json");
  wait_for("(4 messages loaded)");
  enter("/exit");
}

TEST_F(ChatTerminal, CtrlCStopsAnAnswerAndLeavesOnlyAtTheSecondTime) {
  // The grammar never ends, so neither does the answer.
  start({"-n", "-1", "--temp", "1", "--grammar", "root ::= [a-z ]+ root"});
  if (IsSkipped() || HasFatalFailure()) return;
  enter("Tell me a story without end");
  for (int i = 0; i < 600 && screen().find("> Tell me") != std::string::npos; ++i)  // until it scrolled away
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  press("C-c");
  settle();
  press("C-c");
  wait_for("(Ctrl-C again or /exit to quit)");
  settle();
  press("C-c");
  press("C-c");
  for (int i = 0; i < 600 && tmux({"has-session"}).code == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_NE(tmux({"has-session"}).code, 0);
}

}  // namespace
}  // namespace palimpsest::testing
