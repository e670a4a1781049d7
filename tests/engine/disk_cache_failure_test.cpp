// Kept caches on disk that cannot be loaded or written: each is reported, and no answer changes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "palimpsest/engine/scheduler/disk_cache.h"
#include "tests/engine/disk_cache_fixture.h"
#include "tests/support/file_content.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

using DiskCacheFailure = DiskCacheTest;

// Each is a miss, is reported once, and is replaced.
TEST_F(DiskCacheFailure, DamagedFilesAreNeverUsed) {
  std::mt19937 random(8);
  const std::string method = "h2o:budget=64";
  const Tokens first = random_text(random, 100);
  Tokens all = first;
  serve_turn(all, method);
  keep_answers_only();
  ASSERT_EQ(files().size(), 1u);
  const std::string name = files()[0];
  const std::string whole = file_content(path(name));
  append(all, random_text(random, 10));
  const Request request = chat_request(all, method, 8);
  const Tokens expected = alone(request);  // reads all
  const auto write = [&](const std::string& as, const std::string& content) {
    std::ofstream(path(as), std::ios::binary | std::ios::trunc) << content;
  };
  std::vector<std::pair<std::string, std::string>> cases = {{"empty", ""}, {"short", whole.substr(0, 10)}};
  for (int i = 0; i < 15; ++i) {
    std::string damaged = whole;
    damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    cases.emplace_back("a bit", damaged);
    cases.emplace_back("truncated", whole.substr(0, random() % whole.size()));
  }
  cases.emplace_back("longer", whole + "12345678");
  for (const auto& [what, content] : cases) {
    SCOPED_TRACE(what);
    write(name, content);
    errors_.clear();
    Scheduler scheduler(small_decoder(), nullptr, options());
    const auto answer = ask(scheduler, request);
    ASSERT_EQ(answer->tokens, expected);
    EXPECT_EQ(answer->usage.from_disk, 0);
    EXPECT_EQ(scheduler.load().disk_errors, 1);
    Request again = request;
    again.reuse = Reuse::kHistories;
    ask(scheduler, again);
    EXPECT_EQ(errors_.size(), 1u);
    EXPECT_EQ(scheduler.load().used_bytes + scheduler.load().reserved_bytes, 0u);
  }
  // A server that has the text again replaces the damaged file.
  {
    Scheduler scheduler(small_decoder(), nullptr, options());
    ask(scheduler, request);  // reports it
    ask(scheduler, chat_request(first, method, 8));
    scheduler.save_kept();
  }
  Scheduler scheduler(small_decoder(), nullptr, options());
  EXPECT_EQ(ask(scheduler, request)->usage.from_disk, 107);
}

// The load of one file fails, that of the next goes on: step() says that there is more to do.
TEST_F(DiskCacheFailure, AfterADamagedFileTheNextIsLoaded) {
  std::mt19937 random(17);
  Tokens all = random_text(random, 60);
  serve_turn(all, "full");
  const std::vector<std::string> shorter = files();
  append(all, random_text(random, 30));
  serve_turn(all, "full");
  append(all, random_text(random, 10));
  const Request request = chat_request(all, "full", 8);
  const Tokens expected = alone(request);
  for (const std::string& name : files())
    if (std::ranges::find(shorter, name) == shorter.end()) std::ofstream(path(name), std::ios::trunc) << "damaged";
  Scheduler scheduler(small_decoder(), nullptr, options());
  const auto answer = ask(scheduler, request);
  EXPECT_EQ(answer->tokens, expected);
  EXPECT_EQ(answer->usage.from_disk, 67);
  EXPECT_GT(scheduler.load().disk_errors, 0);
}

// A file under the name of another scope's, or of another text.
TEST_F(DiskCacheFailure, FilesUnderOtherNamesAreNeverUsed) {
  std::mt19937 random(9);
  const auto kept = [&](int scope) {
    fs::remove_all(folder_);
    Scheduler scheduler(small_decoder(), nullptr, options());
    std::mt19937 words(10);
    Request request = chat_request(random_text(words, 100), "full", 8);
    request.scope = scope;
    ask(scheduler, request);
    scheduler.save_kept();
    keep_answers_only();
    return std::pair(files().at(0), file_content(path(files().at(0))));
  };
  const auto [name, content] = kept(0);
  const auto [other, others] = kept(1);
  ASSERT_NE(name, other);
  std::ofstream(path(name), std::ios::binary) << others;
  Scheduler scheduler(small_decoder(), nullptr, options());
  std::mt19937 words(10);
  Tokens all = random_text(words, 100);
  Request request = chat_request(all, "full", 8);
  append(all, alone(request));
  append(all, random_text(random, 10));
  request.prompt = all;
  const auto answer = ask(scheduler, request);
  EXPECT_EQ(answer->usage.from_disk, 0);
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_NE(errors_[0].find("another's"), std::string::npos) << errors_[0];
}

TEST_F(DiskCacheFailure, AFileThatVanishesIsAMiss) {
  std::mt19937 random(11);
  Tokens all = random_text(random, 100);
  serve_turn(all, "full");
  keep_answers_only();
  append(all, random_text(random, 10));
  const Request request = chat_request(all, "full", 8);
  Scheduler scheduler(small_decoder(), nullptr, options());
  const auto answer = std::make_shared<Answer>();
  scheduler.submit(request, answer);  // looks for it
  fs::remove(path(files().at(0)));
  while (scheduler.step()) {
  }
  EXPECT_EQ(answer->tokens, alone(request));
  EXPECT_EQ(answer->usage.from_disk, 0);
  EXPECT_EQ(errors_.size(), 1u);
  fs::remove_all(folder_);  // not even a folder
  EXPECT_EQ(ask(scheduler, chat_request(random_text(random, 50), "full", 8))->usage.from_disk, 0);
  scheduler.save_kept();
  EXPECT_EQ(errors_.size(), 2u);
}

TEST_F(DiskCacheFailure, ACancelledLoadLeavesNothing) {
  std::mt19937 random(12);
  Tokens all = random_text(random, 100);
  serve_turn(all, "full");
  append(all, random_text(random, 10));
  for (int steps = 0; steps < 4; ++steps) {
    Scheduler scheduler(small_decoder(), nullptr, options());
    const auto answer = std::make_shared<Answer>();
    const auto id = scheduler.submit(chat_request(all, "full", 8), answer);
    for (int i = 0; i < steps; ++i) scheduler.step();
    scheduler.cancel(id);
    while (scheduler.step()) {
    }
    EXPECT_EQ(answer->ended, 1);
    for (int i = 0; scheduler.load().reserved_bytes > 0 && i < 10'000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      scheduler.step();
    }
    EXPECT_EQ(scheduler.load().used_bytes + scheduler.load().reserved_bytes, 0u);
  }
}

// A full disk: nothing is written, nothing is lost, and it is reported.
TEST_F(DiskCacheFailure, AFailedWriteIsReported) {
  std::mt19937 random(14);
  Scheduler scheduler(small_decoder(), nullptr, options());
  Tokens all = random_text(random, 100);
  append(all, ask(scheduler, chat_request(all, "full", 8))->tokens);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 10'000;
  ::setrlimit(RLIMIT_FSIZE, &small);
  scheduler.save_kept();
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_NE(errors_[0].find("cannot be written"), std::string::npos) << errors_[0];
  EXPECT_EQ(errors_[0].find(folder_), std::string::npos) << "clients' errors have no paths, and this one is logged";
  EXPECT_EQ(files(), std::vector<std::string>());
  EXPECT_EQ(scheduler.load().disk_errors, 1);
  append(all, random_text(random, 10));
  EXPECT_EQ(ask(scheduler, chat_request(all, "full", 8))->usage.cached, 107);
}

TEST_F(DiskCacheFailure, IncompleteFilesOfKilledServersAreRemoved) {
  fs::create_directory(folder_);
  std::ofstream(path("0123.h.5.25.0000000000000001.kv.new.1.1")) << "half";
  std::ofstream(path("notes.txt")) << "not ours";
  std::ofstream(path("x.kv")) << "not ours either";
  Scheduler scheduler(small_decoder(), nullptr, options());
  EXPECT_EQ(files(), (std::vector<std::string>{"notes.txt", "x.kv"}));
  std::mt19937 random(16);
  EXPECT_EQ(ask(scheduler, chat_request(random_text(random, 30), "full", 4))->usage.from_disk, 0);
}

}  // namespace
}  // namespace palimpsest::testing
