// palimpsest chat, driven through pipes.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "tests/apps/command.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

class ChatTest : public WithDefaultModel {
 protected:
  Words chat(Words more = {}) const {
    Words words = on({"chat", "--chat-template", "chatml", "--temp", "0", "-n", "12"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Short answers, before the model invents a name: which name is a near tie, and a message that is read in other steps
  // rounds differently.
  Words short_chat() const {
    return on({"chat", "--chat-template", "chatml", "--temp", "0", "-n", "6", "--method", "full"});
  }
};

TEST_F(ChatTest, AnswersEveryLineUntilTheEndOfInput) {
  const Finished one = command(chat(), "Hello\n");
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_TRUE(one.err.starts_with("palimpsest: auto keeps all of the first ")) << one.err;
  EXPECT_EQ(one.err.find('\n'), one.err.size() - 1);
  EXPECT_GT(one.out.size(), 5u);
  const Finished two = command(chat(), "Hello\nAnd then?");
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_TRUE(two.out.starts_with(one.out)) << two.out;
  EXPECT_GT(two.out.size(), one.out.size());
}

TEST_F(ChatTest, ResetForgets) {
  const Finished done = command(chat(), "My name is Otto.\n/reset\nAnd then?\n");
  EXPECT_EQ(done.code, 0) << done.err;
  const std::string first = command(chat(), "My name is Otto.\n").out, second = command(chat(), "And then?\n").out;
  EXPECT_EQ(done.out, first + second);
  EXPECT_NE(command(chat(), "My name is Otto.\nAnd then?\n").out, done.out);
}

TEST_F(ChatTest, ALoadedConversationPinsItsSystemPrompt) {
  const std::string file =
      write_file("kind.json", R"({"system": "Be kind to all.", "messages": [{"role": "user", "content": "Hello"},
                                                                            {"role": "assistant", "content": "Hi"}]})")
          .string();
  const std::string input = "Hello\n/stats\n/load " + file + "\nWho are you?\n/stats\n";
  const Finished done = command(chat({"--pin-prompt", "--method", "h2o:budget=200"}), input);
  EXPECT_EQ(done.code, 0) << done.err;
  const auto loaded = done.err.find("(2 messages loaded)");
  ASSERT_NE(loaded, std::string::npos) << done.err;
  EXPECT_EQ(done.err.substr(0, loaded).find("pin="), std::string::npos) << done.err;
  EXPECT_NE(done.err.substr(loaded).find("pin=0-"), std::string::npos) << done.err;
  // One that leaves no budget is refused, and the conversation is as before.
  const std::string often(400, 'a');
  const std::string long_one = write_file("long.json", R"({"system": ")" + often + R"(", "messages": []})").string();
  const Finished refused =
      command(chat({"--pin-prompt", "--method", "h2o:budget=16"}), "Hello\n/load " + long_one + "\nWho are you?\n");
  EXPECT_EQ(refused.code, 0) << refused.err;
  EXPECT_NE(refused.err.find("budget 16 is below"), std::string::npos) << refused.err;
  EXPECT_EQ(refused.out, command(chat({"--method", "h2o:budget=16"}), "Hello\nWho are you?\n").out);
}

TEST_F(ChatTest, ManyTurnsStayInTheBudget) {
  std::string input;
  for (int i = 0; i < 40; ++i) input += "What did the dog do then?\n";
  const Finished done = command(chat({"--method", "streaming:budget=64"}), input + "/stats\n");
  EXPECT_EQ(done.code, 0) << done.err;
  // 64 tokens, and a page more while a prompt is read.
  const std::string peak = fmt::format("(64 tokens, peak {}.0 KiB)", 128 * token_bytes_ / 1024);
  EXPECT_NE(done.err.find(peak), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("tokens in total"), std::string::npos) << done.err;
}

TEST_F(ChatTest, Commands) {
  const Finished done = command(chat(), "/help\n/nosuch\n\n/stats\n/exit\nnever read\n");
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(done.out, "");
  EXPECT_NE(done.err.find("/reset"), std::string::npos);
  EXPECT_NE(done.err.find("unknown command '/nosuch'"), std::string::npos);
}

TEST_F(ChatTest, UndoTakesAMessageBack) {
  // The greedy answer after the undo is the one without the message that was taken back.
  const Finished done = command(short_chat(), "Hello\nNo, wait\n/undo\nAnd then?\n/undo\n/undo\n/undo\n");
  EXPECT_EQ(done.code, 0) << done.err;
  const std::string whole = command(short_chat(), "Hello\nNo, wait\n").out;
  const std::string other = command(short_chat(), "Hello\nAnd then?\n").out;
  const std::string first = command(short_chat(), "Hello\n").out;
  EXPECT_EQ(done.out, whole + other.substr(first.size()));
  EXPECT_NE(command(short_chat(), "Hello\nNo, wait\nAnd then?\n").out, done.out);
  EXPECT_NE(done.err.find("(taken back: And then?)"), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("(taken back: Hello)"), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("(there is no message to take back)"), std::string::npos) << done.err;
}

TEST_F(ChatTest, EditAnswersTheChangedMessage) {
  const Finished done = command(chat({"--method", "full"}), "Hello\n/edit And then?\n/edit\n");
  const std::string hello = command(chat({"--method", "full"}), "Hello\n").out;
  EXPECT_EQ(done.out, hello + command(chat({"--method", "full"}), "And then?\n").out) << done.err;
  EXPECT_NE(done.err.find("/edit needs the new text"), std::string::npos) << done.err;
}

TEST_F(ChatTest, AnotherMethodReadsTheConversationAgain) {
  const Finished done =
      command(chat({"--method", "full"}),
              "My name is Otto.\n/method streaming:budget=256\n/stats\n/budget 200\n/stats\n/budget x\n"
              "/method nosuch\nAnd then?\n/memory\n");
  EXPECT_EQ(done.code, 0) << done.err;
  const std::string whole = command(chat({"--method", "full"}), "My name is Otto.\nAnd then?\n").out;
  EXPECT_EQ(done.out, whole);  // 200 tokens hold this conversation
  for (const char* part : {"(now streaming, budget 256; ", "(now streaming:budget=200; ", "nosuch", "full cache"})
    EXPECT_NE(done.err.find(part), std::string::npos) << part << "\n" << done.err;
}

TEST_F(ChatTest, AnotherMethodHasTheMessagesBeforeIt) {
  const Finished done = command(short_chat(),
                                "Hello\nNo, wait\n/method streaming:budget=256\n/stats\n/memory\n/undo\nAnd then?\n"
                                "/method h2o\n/undo\n/undo\n/undo\n/stats\n");
  EXPECT_EQ(done.code, 0) << done.err;
  const std::string whole = command(short_chat(), "Hello\nNo, wait\n").out;
  const std::string other = command(short_chat(), "Hello\nAnd then?\n").out;
  const std::string first = command(short_chat(), "Hello\n").out;
  EXPECT_EQ(done.out, whole + other.substr(first.size())) << done.err;
  for (const char* part : {"tokens in total; ", " tokens are read again with the next message; streaming, budget 256",
                           "(nothing was read yet; ", "(taken back: No, wait)", "(taken back: And then?)",
                           "(taken back: Hello)", "(there is no message to take back)", "\n0 tokens in total; h2o"})
    EXPECT_NE(done.err.find(part), std::string::npos) << part << "\n" << done.err;
}

TEST_F(ChatTest, AnotherMethodKeepsTheBudget) {
  const auto notes = [&](const Words& flags, const std::string& input) {
    const Finished done = command(chat(flags), input);
    EXPECT_EQ(done.code, 0) << done.err;
    return done.err;
  };
  EXPECT_EQ(notes({"--method", "streaming:budget=99"},
                  "/method h2o\n/method full\n/method ems\n/method h2o:budget=80\n/budget 70\n/method streaming\n"),
            "(now h2o:budget=99)\n(now full, evicts nothing; budget 99 stays for other methods)\n(now ems:budget=99)\n"
            "(now h2o:budget=80)\n(now h2o:budget=70)\n(now streaming:budget=70)\n");
  EXPECT_EQ(notes({"--method", "streaming", "--budget", "98"}, "/method h2o\n"), "(now h2o:budget=98)\n");
  EXPECT_EQ(notes({"--method", "streaming"}, "/method h2o\n"), "(now h2o, budget 256)\n");  // none was written
  const std::string refused = notes({"--method", "streaming:budget=9"}, "/method snapkv\n/stats\n");
  EXPECT_NE(refused.find("budget 9 is below"), std::string::npos) << refused;
  EXPECT_NE(refused.find("; streaming:budget=9"), std::string::npos) << refused;
}

TEST_F(ChatTest, ALongMessageInAPipeShowsNoProgress) {
  std::string words;
  for (int i = 0; i < 600; ++i) words += "dog ";
  const Finished done = command(chat({"--method", "streaming"}), words + "\n");
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(done.err, "");
}

TEST_F(ChatTest, SavedMessagesGoOn) {
  const std::string path = write_file("talk.json", "").string();
  const Finished done =
      command(chat(), "My name is Otto.\n/save " + path + "\n/reset\n/load " + path + "\nAnd then?\n");
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, command(chat(), "My name is Otto.\nAnd then?\n").out) << done.err;
  EXPECT_NE(done.err.find("(2 messages loaded)"), std::string::npos) << done.err;
  for (const char* bad : {"{}", "[1]", "{\"system\":\"\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "x"}) {
    const Finished refused = command(chat(), "/load " + write_file("bad.json", bad).string() + "\nHello\n");
    EXPECT_EQ(refused.out, command(chat(), "Hello\n").out) << bad;
    EXPECT_FALSE(refused.err.empty());
  }
  const Finished nowhere = command(chat(), "Hello\n/save /nonexistent/x.json\n");
  EXPECT_NE(nowhere.err.find("cannot be written"), std::string::npos) << nowhere.err;
}

TEST_F(ChatTest, ALineThatIsNotUtf8IsNotSent) {
  const Finished done = command(chat(), "caf\xE9\nHello\n");
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(done.out, command(chat(), "Hello\n").out);
  EXPECT_NE(done.err.find("byte 3"), std::string::npos) << done.err;
}

TEST_F(ChatTest, CtrlCStopsTheAnswerNotTheConversation) {
  // The grammar never ends, so neither does the answer.
  Subprocess process(command_path(), chat({"-n", "-1", "--temp", "1", "--grammar", "root ::= [a-z ]+ root"}));
  process.write("Tell me a story without end\n");
  ASSERT_TRUE(process.wait_for_output(2000));
  process.signal(SIGINT);
  process.write("/stats\n");
  ASSERT_TRUE(process.wait_for_error_text("tokens in total")) << "the first answer goes on";
  const std::size_t before = process.out().size();
  process.write("Go on\n");
  ASSERT_TRUE(process.wait_for_output(before + 2000)) << "no second answer";
  process.signal(SIGINT);
  process.write("/exit\n");
  const Finished done = process.wait();
  EXPECT_EQ(done.code, 0) << done.err;
}

// Ctrl-C while a write waits because nobody reads the pipe (or the terminal is slow): the conversation goes on.
TEST_F(ChatTest, CtrlCDuringAWriteThatWaitsStopsTheAnswerOnly) {
  const std::string fifo = own_file("chat.fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const int pipe = ::open(fifo.c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(pipe, 0);
#ifdef F_SETPIPE_SZ
  ::fcntl(pipe, F_SETPIPE_SZ, 4096);
#endif
  Words words = chat({"-n", "-1", "--temp", "1", "--grammar", "root ::= [a-z ]+ root"});
  words.insert(words.begin(), {"-c", "exec \"$0\" \"$@\" > '" + fifo + "'", command_path()});
  Subprocess process("/bin/sh", words);
  process.write("Tell me a story without end\n");
  int before = -1, waiting = 0;                                           // bytes in the pipe
  for (int i = 0; i < 600 && (waiting == 0 || waiting != before); ++i) {  // until it is full
    before = waiting;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ASSERT_EQ(::ioctl(pipe, FIONREAD, &waiting), 0);
  }
  process.signal(SIGINT);
  std::atomic<bool> ended{false};
  std::thread reader([&] {
    char buffer[4096];
    while (!ended)
      if (::read(pipe, buffer, sizeof buffer) <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  process.write("/stats\n");
  const bool goes_on = process.wait_for_error_text("tokens in total");
  process.write("/exit\n");
  const Finished done = process.wait();
  ended = true;
  reader.join();
  ::close(pipe);
  std::remove(fifo.c_str());
  EXPECT_TRUE(goes_on);
  EXPECT_EQ(done.code, 0) << done.err;
}

TEST_F(ChatTest, CtrlCTwiceWhileItWaitsLeaves) {
  Subprocess process(command_path(), chat());
  process.write("Hello\n/stats\n");
  ASSERT_TRUE(process.wait_for_error_text("tokens in total"));  // it waits for the next line
  process.signal(SIGINT);
  ASSERT_TRUE(process.wait_for_error_text("again or /exit"));
  process.signal(SIGINT);
  EXPECT_EQ(process.wait().code, 130);
}

}  // namespace
}  // namespace palimpsest::testing
