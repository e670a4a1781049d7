// Kept prefixes and histories on disk: a scheduler continues from what another one kept, and from nothing else.
#include "palimpsest/engine/scheduler/disk_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "tests/engine/disk_cache_fixture.h"
#include "tests/support/draws.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

// Each turn is served by another scheduler.
TEST_F(DiskCacheTest, ChatsContinueAfterARestart) {
  const std::vector<std::string> methods(std::begin(kChatMethods), std::end(kChatMethods));
  for (const std::string& method : some_of(methods, 8)) {
    SCOPED_TRACE(method);
    fs::remove_all(folder_);
    OneSession session(method);
    std::mt19937 random(1);
    Tokens all;
    for (int turn = 0; turn < 4; ++turn) {
      Scheduler scheduler(small_decoder(), nullptr, options());
      const Tokens message = random_text(random, 1 + random() % 60);
      append(all, message);
      const auto answer = ask(scheduler, chat_request(all, method, 8));
      ASSERT_EQ(answer->tokens, session.answer(message, 8)) << turn;
      const long long found = turn == 0 ? 0 : std::ssize(all) - std::ssize(message) - 1;
      EXPECT_EQ(answer->usage.cached, found);
      EXPECT_EQ(answer->usage.from_disk, found);
      EXPECT_EQ(scheduler.load().prompt_tokens, std::ssize(all) - found);
      EXPECT_EQ(scheduler.load().disk_hits, turn == 0 ? 0 : 1);
      append(all, answer->tokens);
      scheduler.save_kept();
      EXPECT_EQ(scheduler.load().disk_errors, 0);
      EXPECT_EQ(scheduler.load().used_bytes + scheduler.load().reserved_bytes, 0u);
    }
    EXPECT_EQ(errors_, std::vector<std::string>());
  }
}

TEST_F(DiskCacheTest, PrefixesContinueAfterARestart) {
  std::set<std::string> methods(std::begin(kMethods), std::end(kMethods));
  methods.insert(std::begin(kChatMethods), std::end(kChatMethods));
  for (const std::string& method : some_of(std::vector<std::string>(methods.begin(), methods.end()), 8)) {
    SCOPED_TRACE(method);
    fs::remove_all(folder_);
    std::mt19937 random(2);
    Request request = chat_request(random_text(random, 130), method, 20);
    request.reuse = Reuse::kPrefixes;
    const Tokens expected = alone(request);
    long long found = 0;
    {
      Scheduler scheduler(small_decoder(), nullptr, options());
      EXPECT_EQ(ask(scheduler, request)->tokens, expected);
      found = ask(scheduler, request)->usage.cached;  // from memory
      scheduler.save_kept();
    }
    Scheduler scheduler(small_decoder(), nullptr, options());
    const auto answer = ask(scheduler, request);
    EXPECT_EQ(answer->tokens, expected);
    if (method.starts_with("kvzip")) {  // reads a prompt twice
      EXPECT_EQ(answer->usage.from_disk, 0);
      continue;
    }
    if (method.ends_with("split=ada")) {  // files have the budgets of heads, prefixes in memory do not
      EXPECT_EQ(answer->usage.from_disk, 120);
      continue;
    }
    EXPECT_EQ(answer->usage.from_disk, found);
    // It is in memory again, and others share it.
    EXPECT_EQ(ask(scheduler, request)->usage.from_disk, 0);
    Request other = request;
    Tokens prompt(request.prompt.begin(), request.prompt.end());
    prompt.back() ^= 1;
    other.prompt = prompt;
    const auto answered = ask(scheduler, other);
    EXPECT_EQ(answered->tokens, alone(other));
    EXPECT_GE(answered->usage.cached, found);
    EXPECT_EQ(answered->usage.from_disk, 0);
    EXPECT_EQ(errors_, std::vector<std::string>());
  }
}

// A system prompt that several chats have is found for a new one.
TEST_F(DiskCacheTest, ASharedBeginningIsWrittenOnItsOwn) {
  std::mt19937 random(3);
  const Tokens system = random_text(random, 100);
  const auto chat = [&] {
    Tokens prompt = system;
    append(prompt, random_text(random, 60));
    return chat_request(prompt, "h2o:budget=64", 4);
  };
  {
    Scheduler scheduler(small_decoder(), nullptr, options());
    for (int i = 0; i < 3; ++i) ask(scheduler, chat());
    scheduler.save_kept();
    EXPECT_EQ(files().size(), 7u) << "three answers' ends and three prompts', one prefix";
  }
  Scheduler scheduler(small_decoder(), nullptr, options());
  const Request request = chat();
  const auto answer = ask(scheduler, request);
  EXPECT_EQ(answer->usage.from_disk, 96);
  EXPECT_EQ(answer->tokens, alone(request));
}

// Answers without their reasoning, as some templates resend them: chats continue from the ends of prompts.
TEST_F(DiskCacheTest, PromptEndsAreWrittenUnlessAnswersEndsAreUsed) {
  for (const bool stripped : {true, false}) {
    SCOPED_TRACE(stripped);
    fs::remove_all(folder_);
    std::mt19937 random(4);
    Tokens all = random_text(random, 50);
    const long long more = stripped ? 26 : 21;
    const auto turn = [&](Scheduler& scheduler) {
      const auto answer = ask(scheduler, chat_request(all, "h2o:budget=64", 12));
      append(all, std::span(answer->tokens).subspan(stripped ? 6 : 0));
      append(all, random_text(random, 20));
      return answer->usage;
    };
    for (int restart = 0; restart < 3; ++restart) {
      Scheduler scheduler(small_decoder(), nullptr, options());
      const long long first = restart == 0 ? 0 : std::ssize(all) - more;
      EXPECT_EQ(turn(scheduler).from_disk, first);
      const long long second = std::ssize(all) - more;
      EXPECT_EQ(turn(scheduler).cached, second);
      scheduler.save_kept();
    }
    const auto ends = std::ranges::count_if(files(), [](const auto& name) { return name.find(".e.") != name.npos; });
    EXPECT_EQ(ends, stripped ? 3 : 0);
  }
}

// What has no room in memory is found on disk.
TEST_F(DiskCacheTest, WhatLeavesMemoryComesBack) {
  SchedulerOptions tight = options(std::size_t{1} << 20);
  tight.prefix_bytes = std::size_t{160} << 10;
  Scheduler scheduler(small_decoder(), nullptr, tight);
  std::mt19937 random(5);
  std::vector<Tokens> chats(20);
  std::vector<std::unique_ptr<OneSession>> sessions;
  for (std::size_t i = 0; i < chats.size(); ++i) sessions.push_back(std::make_unique<OneSession>("full"));
  for (int turn = 0; turn < 3; ++turn)
    for (std::size_t i = 0; i < chats.size(); ++i) {
      const Tokens message = random_text(random, 40);
      const auto before = std::ssize(chats[i]);
      append(chats[i], message);
      const auto answer = ask(scheduler, chat_request(chats[i], "full", 4));
      EXPECT_EQ(answer->tokens, sessions[i]->answer(message, 4));
      EXPECT_EQ(answer->usage.from_disk, turn == 0 ? 0 : before - 1);
      append(chats[i], answer->tokens);
      scheduler.save_kept();
      EXPECT_LE(scheduler.load().prefix_bytes, tight.prefix_bytes);
    }
  EXPECT_EQ(scheduler.load().disk_hits, 40);
  EXPECT_EQ(scheduler.load().disk_errors, 0);
}

// The writer is never waited for: what is evicted while it is written is given up.
TEST_F(DiskCacheTest, WritesWhileOthersStep) {
  SchedulerOptions tight = options(std::size_t{1} << 20);
  tight.prefix_bytes = std::size_t{160} << 10;
  tight.disk.unused_for = std::chrono::milliseconds(0);
  Scheduler scheduler(small_decoder(), nullptr, tight);
  std::mt19937 random(6);
  struct Chat {
    Tokens text, message;
    std::shared_ptr<Answer> answer;
    std::unique_ptr<OneSession> session;
  };
  std::vector<Chat> chats(12);
  for (std::size_t i = 0; i < chats.size(); ++i)
    chats[i].session = std::make_unique<OneSession>(i % 2 == 0 ? "full" : "h2o:budget=40");
  for (int turn = 0; turn < 6; ++turn) {
    for (std::size_t i = 0; i < chats.size(); ++i) {
      chats[i].message = random_text(random, 1 + random() % 40);
      append(chats[i].text, chats[i].message);
      chats[i].answer = std::make_shared<Answer>();
      scheduler.submit(chat_request(chats[i].text, i % 2 == 0 ? "full" : "h2o:budget=40", 6), chats[i].answer);
    }
    while (scheduler.step()) {
    }
    for (Chat& chat : chats) {
      ASSERT_EQ(chat.answer->how, Finish::kLength) << chat.answer->usage.error;
      append(chat.text, chat.answer->tokens);
    }
  }
  // Whether a chat was found depends on the writer; if it was, it is as if it had never been resent.
  for (std::size_t i = 0; i < chats.size(); ++i) EXPECT_EQ(chats[i].answer->tokens.size(), 6u);
  scheduler.save_kept();
  EXPECT_EQ(errors_, std::vector<std::string>());
  EXPECT_EQ(scheduler.load().used_bytes + scheduler.load().reserved_bytes, 0u);
  Scheduler next(small_decoder(), nullptr, options());
  for (std::size_t i = 0; i < chats.size(); i += 2) {  // of `full`: equal whatever was found
    append(chats[i].text, random_text(random, 5));
    const Request request = chat_request(chats[i].text, "full", 6);
    EXPECT_EQ(ask(next, request)->tokens.size(), 6u);
  }
}

TEST_F(DiskCacheTest, OtherScopesMethodsAndModelsHaveNone) {
  std::mt19937 random(7);
  Tokens all = random_text(random, 100);
  {
    Scheduler scheduler(small_decoder(), nullptr, options());
    append(all, ask(scheduler, chat_request(all, "h2o:budget=64", 8))->tokens);
    Request prefix = chat_request(all, "h2o:budget=64", 8);
    prefix.reuse = Reuse::kPrefixes;
    ask(scheduler, prefix);
    scheduler.save_kept();
    keep_answers_only();
    EXPECT_EQ(files().size(), 2u);
  }
  append(all, random_text(random, 10));
  const auto found = [&](const SchedulerOptions& other, auto change, std::shared_ptr<Decoder> decoder) {
    Scheduler scheduler(std::move(decoder), nullptr, other);
    Request request = chat_request(all, "h2o:budget=64", 8);
    change(request);
    return ask(scheduler, request)->usage.from_disk;
  };
  const auto same = [](Request&) {};
  EXPECT_EQ(found(options(), same, small_decoder()), 107);
  EXPECT_EQ(found(
                options(), [](Request& r) { r.reuse = Reuse::kPrefixes; }, small_decoder()),
            96);
  EXPECT_EQ(found(
                options(), [](Request& r) { r.reuse = Reuse::kNothing; }, small_decoder()),
            0);
  EXPECT_EQ(found(
                options(), [](Request& r) { r.scope = 1; }, small_decoder()),
            0);
  EXPECT_EQ(found(
                options(), [](Request& r) { r.method = parse_method("h2o:budget=65"); }, small_decoder()),
            0);
  SchedulerOptions other = options();
  other.disk.scopes = {"somebody else's key"};
  EXPECT_EQ(found(other, same, small_decoder()), 0);
  other = options();
  other.page_size = 32;
  EXPECT_EQ(found(other, same, small_decoder()), 0);
  other = options();
  other.cache_type = CacheType::kF16;
  EXPECT_EQ(found(other, same, small_decoder()), 0);
  other = options();
  other.chunk = 16;
  EXPECT_EQ(found(other, same, small_decoder()), 0);
  const auto model = Model::from(make_synthetic({.vocabulary = kVocabulary,
                                                 .width = 64,
                                                 .layers = 2,
                                                 .feed_forward = 96,
                                                 .query_heads = 4,
                                                 .kv_heads = 2,
                                                 .head_dim = 16,
                                                 .seed = 2}));
  EXPECT_EQ(found(options(), same, std::make_shared<Decoder>(model, 1)), 0);
  EXPECT_EQ(errors_, std::vector<std::string>());
}

// The folder stays below its max; the last used files stay, and of a chat the last.
TEST_F(DiskCacheTest, TheOldestFilesAreRemoved) {
  std::mt19937 random(13);
  SchedulerOptions small = options();
  small.disk.max_bytes = std::size_t{400} << 10;
  const auto size = [&] {
    std::size_t bytes = 0;
    for (const std::string& name : files()) bytes += fs::file_size(path(name));
    return bytes;
  };
  std::vector<Tokens> chats(20);
  for (Tokens& chat : chats) {
    Scheduler scheduler(small_decoder(), nullptr, small);
    chat = random_text(random, 60);
    append(chat, ask(scheduler, chat_request(chat, "full", 4))->tokens);
    scheduler.save_kept();
    EXPECT_LE(size(), small.disk.max_bytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // times of files are as coarse
  }
  EXPECT_GT(size(), small.disk.max_bytes / 2);
  Scheduler scheduler(small_decoder(), nullptr, small);
  const auto found = [&](Tokens chat) {
    append(chat, random_text(random, 3));
    return ask(scheduler, chat_request(chat, "full", 4))->usage.from_disk;
  };
  EXPECT_EQ(found(chats.back()), 63);
  EXPECT_EQ(found(chats.front()), 0);
  // One that is too large is not written, and removes no other.
  const auto before = files();
  Scheduler tiny(small_decoder(), nullptr, [&] {
    SchedulerOptions one = options();
    one.disk.max_bytes = 1000;
    return one;
  }());
  ask(tiny, chat_request(random_text(random, 60), "full", 4));
  tiny.save_kept();
  EXPECT_EQ(files(), before);
  EXPECT_EQ(errors_, std::vector<std::string>());
}

// Two servers on one folder, at the same time, with the same chats.
TEST_F(DiskCacheTest, TwoSchedulersShareAFolder) {
  SchedulerOptions shared = options(std::size_t{1} << 20);
  shared.prefix_bytes = std::size_t{160} << 10;
  shared.disk.unused_for = std::chrono::milliseconds(0);
  shared.disk.max_bytes = std::size_t{600} << 10;
  shared.disk.on_error = nullptr;
  std::mt19937 random(15);
  std::vector<std::pair<Request, Tokens>> requests;  // `full`: the answer does not depend on what is found
  for (int i = 0; i < 10; ++i) {
    Tokens all = random_text(random, 30 + random() % 60);
    for (int turn = 0; turn < 3; ++turn) {
      Request request = chat_request(all, "streaming:budget=40", 6);
      request.reuse = Reuse::kPrefixes;
      requests.emplace_back(request, alone(request));
      append(all, requests.back().second);
      append(all, random_text(random, 20));
    }
  }
  const auto serve = [&](unsigned seed) {
    std::mt19937 order(seed);
    Scheduler scheduler(small_decoder(), nullptr, shared);
    for (int i = 0; i < 60; ++i) {
      const auto& [request, expected] = requests[order() % requests.size()];
      EXPECT_EQ(ask(scheduler, request)->tokens, expected);
      scheduler.save_kept();
    }
  };
  std::jthread one(serve, 1), two(serve, 2);
}

// Texts are found by their bytes: an answer is not always split into tokens as the tokenizer would.
TEST_F(DiskCacheTest, FindsTextsThatAreSplitOtherwise) {
  const auto vocabulary = Vocabulary::load(default_model());
  DiskCache disk(options().disk, 1, vocabulary);
  const Tokens whole = vocabulary->tokenize("Once upon a time there was a cat.", true, false);
  Tokens bytes(whole.begin(), whole.begin() + 1);
  const std::string text = vocabulary->detokenize(std::span(whole).subspan(1));
  for (const char c : text)
    for (const TokenId token : vocabulary->tokenize(std::string(1, c), false, false)) bytes.push_back(token);
  const auto name_of = [&](const Tokens& tokens, KeptKind kind = KeptKind::kHistory) {
    return disk.name_of({.key = "k", .kind = kind, .tokens = tokens});
  };
  std::ofstream(disk.path(name_of(whole))) << "x";
  const auto found = [&](const Tokens& prompt, bool histories = true) {
    std::vector<std::size_t> matched;
    for (const DiskCache::File& file : disk.find("k", prompt, histories)) matched.push_back(file.matched);
    return matched;
  };
  using Matched = std::vector<std::size_t>;
  EXPECT_EQ(found(whole), Matched{whole.size()});
  Tokens longer = vocabulary->tokenize("Once upon a time there was a cat. It was sad.", true, false);
  EXPECT_EQ(found(longer), Matched{whole.size()});
  EXPECT_EQ(found(longer, false), Matched{});
  EXPECT_EQ(found(vocabulary->tokenize("Once upon a time there was a cat, It was sad.", true, false)), Matched{});
  EXPECT_EQ(found(Tokens(whole.begin(), whole.end() - 1)), Matched{});
  std::ofstream(disk.path(name_of(Tokens(whole.begin(), whole.begin() + 4)))) << "x";
  EXPECT_EQ(found(longer), (Matched{whole.size(), 4})) << "the longest first";
}

TEST(LoadSpeed, FollowsTheLastLoads) {
  LoadSpeed speed;
  const double expected = speed.seconds(1'000'000'000);
  EXPECT_NEAR(expected, 2, 1e-9);
  speed.loaded(50'000, 0.001);  // a small file says little
  EXPECT_NEAR(speed.seconds(1'000'000'000), expected, 0.01);
  for (int i = 0; i < 10; ++i) speed.loaded(20'000'000, 2);
  EXPECT_GT(speed.seconds(1'000'000'000), 50);
  for (int i = 0; i < 100; ++i) speed.skipped();
  EXPECT_LT(speed.seconds(1'000'000'000), 1) << "it is tried again";
}

}  // namespace
}  // namespace palimpsest::testing
