// A client that resends its whole chat in each request gets the answers of a session that never resent anything.
#include <gtest/gtest.h>

#include "tests/engine/chat_fixture.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

TEST(History, ResendingEqualsASessionThatNeverResent) {
  for (const std::string method : kChatMethods) {
    SCOPED_TRACE(method);
    Scheduler scheduler(small_decoder(), nullptr, chat_options());
    OneSession session(method);
    std::mt19937 random(1);
    Tokens all;
    long long fresh = 0;
    for (int turn = 0; turn < 6; ++turn) {
      const Tokens message = random_text(random, 1 + random() % 40);
      append(all, message);
      const long long length = 1 + random() % 20;
      const auto answer = ask(scheduler, chat_request(all, method, length));
      ASSERT_EQ(answer->tokens, session.answer(message, length)) << turn;
      const long long unread = turn == 0 ? 0 : 1;
      EXPECT_EQ(answer->usage.cached, std::ssize(all) - std::ssize(message) - unread) << turn;
      fresh += std::ssize(message) + unread;
      append(all, answer->tokens);
      EXPECT_EQ(scheduler.load().prompt_tokens, fresh) << turn;
    }
    EXPECT_EQ(scheduler.load().history_hits, 5);
    EXPECT_EQ(scheduler.load().history_queries, 6);
    EXPECT_EQ(scheduler.load().used_bytes, 0u);
    EXPECT_TRUE(session.session.cache().evicted() > 20 || method == "full");
  }
}

// The last message is edited, an answer is edited, an early message is edited: as a session that read the edited text
// after what comes before it.
TEST(History, AChangedHistoryEqualsReadingFromTheChange) {
  for (const std::string method : kChatMethods) {
    SCOPED_TRACE(method);
    Scheduler scheduler(small_decoder(), nullptr, chat_options());
    std::mt19937 random(2);
    Tokens all;
    std::vector<Tokens> messages, answers, before;
    for (int turn = 0; turn < 4; ++turn) {
      messages.push_back(random_text(random, 10 + random() % 30));
      before.push_back(all);
      append(all, messages.back());
      answers.push_back(ask(scheduler, chat_request(all, method, 12))->tokens);
      append(all, answers.back());
    }
    const auto session_at = [&](std::size_t turn) {  // before this turn's message
      auto session = std::make_unique<OneSession>(method);
      for (std::size_t i = 0; i < turn; ++i) EXPECT_EQ(session->answer(messages[i], 12), answers[i]);
      return session;
    };
    for (const std::size_t turn : {3, 1}) {  // another message
      Tokens prompt = before[turn];
      const Tokens other = random_text(random, 17);
      append(prompt, other);
      const auto answer = ask(scheduler, chat_request(prompt, method, 15));
      EXPECT_EQ(answer->tokens, session_at(turn)->answer(other, 15));
      EXPECT_EQ(answer->usage.cached, std::ssize(before[turn]) - 1);
    }
    {  // the same message: the answer is generated again
      Tokens prompt = before[2];
      append(prompt, messages[2]);
      EXPECT_EQ(ask(scheduler, chat_request(prompt, method, 12))->tokens, answers[2]);
    }
    {  // another answer: read after the prompt, as a second prompt
      Tokens prompt = before[3], rest = {static_cast<TokenId>(answers[3][0] ^ 1), 5, 6, 7};
      append(prompt, messages[3]);
      append(prompt, rest);
      const auto answer = ask(scheduler, chat_request(prompt, method, 15));
      auto session = session_at(3);
      Tokens unread = session->unread;
      append(unread, messages[3]);
      session->session.prefill(unread);
      session->unread.clear();
      EXPECT_EQ(answer->tokens, session->answer(rest, 15));
      EXPECT_EQ(answer->usage.cached, std::ssize(prompt) - std::ssize(rest));
    }
    {  // another beginning: nothing is reused, and the answer is that of a scheduler without histories
      Tokens prompt = all;
      prompt[0] ^= 1;
      Request request = chat_request(prompt, method, 15);
      const auto answer = ask(scheduler, request);
      EXPECT_EQ(answer->usage.cached, 0);
      EXPECT_EQ(answer->tokens, alone(request));
    }
  }
}

// A long message is not read again from its beginning if only its end changed.
TEST(History, PartsOfALongMessageAreKept) {
  for (const std::string method : {"full", "h2o:budget=40", "snapkv:budget=48", "streaming:budget=40,every=8"}) {
    SCOPED_TRACE(method);
    Scheduler scheduler(small_decoder(), nullptr, chat_options());
    std::mt19937 random(3);
    Tokens all = random_text(random, 20);
    append(all, ask(scheduler, chat_request(all, method, 8))->tokens);
    Tokens message = random_text(random, 100);
    Tokens prompt = all, other = all;
    append(prompt, message);
    const auto first = ask(scheduler, chat_request(prompt, method, 8));
    EXPECT_EQ(first->usage.cached, 27);
    EXPECT_EQ(ask(scheduler, chat_request(prompt, method, 8))->tokens, first->tokens);
    message.back() ^= 1;
    append(other, message);
    const auto second = ask(scheduler, chat_request(other, method, 8));
    EXPECT_GT(second->usage.cached, 80);
    OneSession session(method);
    session.answer(Tokens(all.begin(), all.begin() + 20), 8);
    EXPECT_EQ(second->tokens, session.answer(message, 8));
  }
}

// Only requests that ask for it, of the same scope and method.
TEST(History, IsUsedOnlyWhereItMayBe) {
  Scheduler scheduler(small_decoder(), nullptr, chat_options());
  std::mt19937 random(4);
  Tokens all = random_text(random, 100);
  Request request = chat_request(all, "h2o:budget=40", 10);
  append(all, ask(scheduler, request)->tokens);
  append(all, random_text(random, 10));
  request.prompt = all;
  const auto cached = [&](auto change) {
    Request other = request;
    change(other);
    const std::size_t before = scheduler.load().prefix_bytes;
    const auto answer = ask(scheduler, other);
    EXPECT_TRUE(answer->usage.cached == 109 || answer->tokens == alone(other));
    EXPECT_TRUE(other.reuse != Reuse::kNothing || scheduler.load().prefix_bytes == before) << "it leaves nothing";
    return answer->usage.cached;
  };
  EXPECT_EQ(cached([](Request& r) { r.reuse = Reuse::kNothing; }), 0);
  EXPECT_EQ(cached([](Request& r) { r.scope = 1; }), 0);
  EXPECT_EQ(cached([](Request& r) { r.scope = 1, r.reuse = Reuse::kPrefixes; }), 96);
  EXPECT_EQ(cached([](Request& r) { r.reuse = Reuse::kPrefixes; }), 96);
  EXPECT_EQ(cached([](Request& r) { r.method = parse_method("h2o:budget=41"); }), 24)
      << "a prefix, from before evictions";
  EXPECT_EQ(cached([](Request&) {}), 109);
}

// The sampler ends the text at any token: what was read is what is kept.
TEST(History, DraftsAndStopsKeepWhatWasRead) {
  for (const std::string method : {"full", "h2o:budget=40,every=6", "streaming:budget=40"}) {
    SCOPED_TRACE(method);
    Scheduler scheduler(small_decoder(), nullptr, chat_options());
    std::mt19937 random(5);
    Tokens all;
    for (int turn = 0; turn < 8; ++turn) {
      const Tokens message = {1, 2, 3, static_cast<TokenId>(random() % 4), 1, 2, 3};
      append(all, message);
      Request request = chat_request(all, method, 30);
      request.drafts = {.max = 4, .min = 1};
      auto answer = std::make_shared<Answer>();
      answer->enough = 3 + random() % 20;
      scheduler.submit(request, answer);
      while (scheduler.step()) {
      }
      EXPECT_EQ(answer->how, Finish::kStopped);
      EXPECT_EQ(answer->usage.cached, turn == 0 ? 0 : std::ssize(all) - std::ssize(message) - 1);
      append(all, answer->tokens);
    }
  }
}

// Many chats on a pool that holds a few: they give way, hits and misses are answered, and nothing exceeds its bounds.
TEST(History, ChatsOnATightPoolLoseNothing) {
  for (unsigned seed = 1; seed <= test_length(3U, 3U, 1U); ++seed) {
    std::mt19937 random(seed);
    SchedulerOptions options = chat_options(std::size_t{400 + 200 * seed} << 10);
    options.prefix_bytes = options.pool_bytes * (seed + 1) / 4;
    Scheduler scheduler(small_decoder(), nullptr, options);
    struct Chat {
      std::string method;
      Tokens all;
      std::shared_ptr<Answer> answer;
    };
    std::vector<Chat> chats(24);
    for (std::size_t i = 0; i < chats.size(); ++i) chats[i].method = kChatMethods[i % std::size(kChatMethods)];
    long long asked = 0, evictions = 0;
    std::size_t last = 0;
    for (int round = 0; round < 1500; ++round) {
      Chat& chat = chats[random() % (round % 100 < 50 ? 4 : chats.size())];
      if (chat.answer != nullptr && chat.answer->ended == 1) {
        EXPECT_EQ(chat.answer->how, Finish::kLength) << chat.answer->usage.error;
        append(chat.all, chat.answer->tokens);
        if (random() % 8 == 0) chat.all.resize(1 + random() % chat.all.size());  // changes its history
        if (chat.all.size() > 300) chat.all.clear();
        chat.answer.reset();
      }
      if (chat.answer == nullptr && round < 1400) {
        append(chat.all, random_text(random, 1 + random() % 30));
        chat.answer = std::make_shared<Answer>();
        scheduler.submit(chat_request(chat.all, chat.method, 1 + random() % 20), chat.answer);
        ++asked;
      }
      scheduler.step();
      const SchedulerLoad load = scheduler.load();
      ASSERT_LE(load.reserved_bytes, options.pool_bytes);
      ASSERT_LE(load.used_bytes, load.reserved_bytes);
      ASSERT_LE(load.prefix_bytes, options.prefix_bytes);
      ASSERT_LE(load.peak_bytes, options.pool_bytes);
      evictions += load.prefix_bytes < last;
      last = load.prefix_bytes;
    }
    for (int steps = 0; scheduler.step(); ++steps) ASSERT_LT(steps, 20000);
    const SchedulerLoad load = scheduler.load();
    EXPECT_EQ(load.used_bytes, 0u);
    EXPECT_EQ(load.reserved_bytes, 0u);
    EXPECT_EQ(load.history_queries, asked);
    EXPECT_GT(load.history_hits, asked / 20);
    EXPECT_LT(load.history_hits, asked);
    EXPECT_GT(evictions, 10);
    std::printf("seed %u: %lld of %lld requests continue, %lld of %lld tokens found, %zu of %zu bytes kept\n", seed,
                load.history_hits, asked, load.prefix_hits, load.prefix_queries, load.prefix_bytes,
                options.prefix_bytes);
  }
}

// A pool that holds a cache of each of three chats, which ask in turn, but not the caches at the ends of their prompts
// and of their answers. The ends that the chats do not continue from give way, whichever they are.
TEST(History, TheEndsThatChatsContinueFromAreKept) {
  constexpr int kChats = 3, kTurns = 12;
  for (const bool cut_answers : {true, false}) {
    for (const std::size_t kibibytes : {200, 230, 260}) {
      SchedulerOptions options = chat_options(std::size_t{2} << 20);
      options.prefix_bytes = kibibytes << 10;
      Scheduler scheduler(small_decoder(), nullptr, options);
      std::mt19937 random(3);
      std::vector<Tokens> chats(kChats);
      long long missed = 0, read = 0;
      for (int turn = 0; turn < kTurns; ++turn)
        for (Tokens& chat : chats) {
          const auto before = static_cast<long long>(chat.size());
          append(chat, random_text(random, 20));
          const auto answer = ask(scheduler, chat_request(chat, "h2o:budget=64", 8));
          if (turn > 3) {
            read += answer->usage.prompt_tokens - answer->usage.cached;
            missed += answer->usage.cached < before - 1;
          }
          append(chat, std::span(answer->tokens).first(cut_answers ? 0 : answer->tokens.size()));
        }
      std::printf("%s, %zu KiB: %lld tokens read, %lld of %d turns began too early\n",
                  cut_answers ? "answers cut" : "whole answers", kibibytes, read, missed, kChats * (kTurns - 4));
      EXPECT_EQ(missed, 0);
    }
  }
}

// The ends of its chunks are kept as prefixes, which no other prompt has used.
TEST(History, ALongPromptLeavesTheChats) {
  SchedulerOptions options = chat_options(std::size_t{2} << 20);
  options.prefix_bytes = std::size_t{300} << 10;
  Scheduler scheduler(small_decoder(), nullptr, options);
  std::mt19937 random(4);
  std::vector<Tokens> chats(2);
  for (Tokens& chat : chats) {
    append(chat, random_text(random, 100));
    append(chat, ask(scheduler, chat_request(chat, "h2o:budget=64", 4))->tokens);
  }
  ask(scheduler, chat_request(random_text(random, 700), "h2o:budget=64", 4));
  EXPECT_GT(scheduler.load().prefix_bytes, options.prefix_bytes / 2);
  for (Tokens& chat : chats) {
    const auto read = static_cast<long long>(chat.size()) - 1;
    append(chat, random_text(random, 10));
    EXPECT_EQ(ask(scheduler, chat_request(chat, "h2o:budget=64", 4))->usage.cached, read);
  }
}

}  // namespace
}  // namespace palimpsest::testing
