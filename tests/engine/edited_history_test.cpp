// A resent chat that was changed in its middle continues from an edit of its history: as a session whose text is edited
// in the same way. Where the edit is refused, as without it.
#include <gtest/gtest.h>

#include <map>

#include "palimpsest/engine/scheduler/text_diff.h"
#include "tests/engine/chat_fixture.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

constexpr std::size_t kRun = 8;

SchedulerOptions edit_options() {
  SchedulerOptions options = chat_options();
  options.cache_reuse = kRun;
  return options;
}

void replace(Tokens& text, std::size_t first, std::size_t last, const Tokens& by) {
  const auto from = text.begin() + static_cast<std::ptrdiff_t>(first);
  text.erase(from, text.begin() + static_cast<std::ptrdiff_t>(last));
  text.insert(text.begin() + static_cast<std::ptrdiff_t>(first), by.begin(), by.end());
}

// The session's text becomes `prompt`, by edits of what both do not have in common; then it answers.
Tokens answer_after_edits(OneSession& session, const Tokens& read, const Tokens& prompt, long long max_tokens) {
  const auto runs = TextDiff(std::span(prompt).first(prompt.size() - 1), kRun).runs(read);
  session.session.edit(static_cast<Position>(runs.back().in_read + runs.back().tokens), session.session.position(), {});
  std::size_t from = 0, to = 0;
  for (const CommonRun& run : runs) {
    const Tokens come(prompt.begin() + static_cast<std::ptrdiff_t>(to),
                      prompt.begin() + static_cast<std::ptrdiff_t>(run.in_text));
    const auto at = static_cast<Position>(to);
    if (run.in_read > from || !come.empty())
      session.session.edit(at, at + static_cast<Position>(run.in_read - from), come);
    from = run.in_read + run.tokens, to = run.in_text + run.tokens;
  }
  session.unread.clear();
  return session.answer(Tokens(prompt.begin() + static_cast<std::ptrdiff_t>(to), prompt.end()), max_tokens);
}

struct Change {
  const char* name;
  std::size_t first, last, come;  // of the text of 150 tokens
  long long behind;               // tokens of the text that are kept at its end; the others are cut off
};
// The last tokens are in every budget; those around position 90 are in few.
constexpr Change kChanges[] = {{"a word", 90, 93, 3, 1000},
                               {"a longer one", 90, 92, 7, 1000},
                               {"a shorter one", 90, 99, 2, 1000},
                               {"removed", 85, 99, 0, 1000},
                               {"inserted", 90, 90, 9, 1000},
                               {"and the end is cut off", 90, 93, 30, 140},
                               {"a late word", 130, 133, 3, 1000},
                               {"a longer late one", 130, 132, 7, 1000},
                               {"a shorter late one", 130, 139, 2, 1000},
                               {"late, and the end is cut off", 130, 133, 12, 146}};

TEST(EditedHistory, EqualsASessionWhoseTextIsEdited) {
  std::map<std::string, int> edited;
  for (const std::string method : kChatMethods)
    for (const Change& change : kChanges) {
      SCOPED_TRACE(method + ", " + change.name);
      Scheduler scheduler(small_decoder(), nullptr, edit_options());
      OneSession session(method);
      std::mt19937 random(7);
      const Tokens first = random_text(random, 60), second = random_text(random, 70);
      Tokens all = first;
      append(all, ask(scheduler, chat_request(all, method, 10))->tokens);
      ASSERT_EQ(session.answer(first, 10), Tokens(all.begin() + 60, all.end()));
      append(all, second);
      append(all, ask(scheduler, chat_request(all, method, 10))->tokens);
      ASSERT_EQ(session.answer(second, 10), Tokens(all.begin() + 140, all.end()));
      const Tokens read(all.begin(), all.end() - 1);

      Tokens prompt = all;
      prompt.resize(std::min(prompt.size(), at(static_cast<int>(change.behind))));
      replace(prompt, change.first, change.last, random_text(random, change.come));
      append(prompt, random_text(random, 20));
      const Request request = chat_request(prompt, method, 12);
      const auto answer = ask(scheduler, request);
      const Usage& usage = answer->usage;
      if (usage.reused == 0) {
        EXPECT_EQ(usage.edited, 0);
        // From the end of the first answer.
        OneSession before(method);
        before.answer(first, 10);
        EXPECT_EQ(answer->tokens, before.answer(Tokens(prompt.begin() + 70, prompt.end()), 12));
        continue;
      }
      ++edited[method];
      EXPECT_EQ(answer->tokens, answer_after_edits(session, read, prompt, 12));
      EXPECT_EQ(usage.reused, std::min(149LL, change.behind) - static_cast<long long>(change.last));
      EXPECT_EQ(usage.cached, usage.reused + static_cast<long long>(change.first));
      EXPECT_EQ(usage.edited, static_cast<long long>(change.come));
      // The next turn continues from what was edited, and reads only what is new.
      append(prompt, answer->tokens);
      append(prompt, Tokens{1, 2, 3});
      const auto next = ask(scheduler, chat_request(prompt, method, 5));
      EXPECT_EQ(next->usage.cached, std::ssize(prompt) - 4);
      EXPECT_EQ(next->usage.reused, 0);
      EXPECT_EQ(next->tokens, session.answer({1, 2, 3}, 5));
    }
  EXPECT_EQ(edited["full"], 10);
  for (const char* method : {"streaming:budget=40", "streaming:budget=40,mechanism=shift", "lazy:budget=40,every=6"})
    EXPECT_EQ(edited[method], 4) << method;                // the late ones
  EXPECT_LE(edited["kvzip:budget=48"], 1);                 // it reads prompts twice: only what removes
  EXPECT_EQ(edited["ems:budget=40,recent=8,tau=0.1"], 0);  // merged tokens have no text
}

// A system prompt that is pinned, as `auto` does it, and becomes longer: pins are positions of the new text. Nothing is
// evicted, so that a session without pins is the oracle.
TEST(EditedHistory, PinsMayMove) {
  Scheduler scheduler(small_decoder(), nullptr, edit_options());
  OneSession session("h2o:budget=400");
  std::mt19937 random(8);
  const Tokens first = random_text(random, 120);
  Tokens prompt = first;
  append(prompt, ask(scheduler, chat_request(prompt, "h2o:budget=400,pin=0-39", 10))->tokens);
  session.answer(first, 10);
  const Tokens read(prompt.begin(), prompt.end() - 1);
  replace(prompt, 20, 22, random_text(random, 5));
  append(prompt, random_text(random, 15));
  const auto answer = ask(scheduler, chat_request(prompt, "h2o:budget=400,pin=0-42", 12));
  EXPECT_EQ(answer->usage.reused, 107);
  EXPECT_EQ(answer->tokens, answer_after_edits(session, read, prompt, 12));
  EXPECT_EQ(ask(scheduler, chat_request(prompt, "h2o:budget=399,pin=0-42", 12))->usage.reused, 0);  // another method
}

// The changed chat is read as without the feature: models and caches that refuse edits, and spans that are too short.
TEST(EditedHistory, RefusedEditsChangeNothing) {
  struct Case {
    const char *model, *method;
    CacheType type;
    std::size_t come;  // in the place of 3 tokens
    bool refused;
  };
  for (const Case& c :
       {Case{"tiny@vocab=300", "full", CacheType::kF16, 5, false},
        {"tiny@vocab=300", "full", CacheType::kQ8_0, 3, false},
        {"tiny@vocab=300", "full", CacheType::kQ8_0, 5, false},
        {"tiny@vocab=300", "full", CacheType::kQ4, 5, false},
        {"tiny@vocab=300", "full", CacheType::kQ3, 5, false},
        {"tiny@vocab=300", "full", CacheType::kQ2, 3, false},
        {"tiny@vocab=300", "full", CacheType::kQ2, 5, true},
        {"tiny-gpt2@vocab=300@context=512", "full", CacheType::kF16, 3, false},
        {"tiny-gpt2@vocab=300@context=512", "full", CacheType::kF16, 5, true},
        {"tiny-lfm2@vocab=300", "full", CacheType::kF16, 3, true},
        {"tiny-gemma2@vocab=300", "full", CacheType::kF16, 3, true},
        {"tiny@vocab=300", "streaming:budget=100,sinks=40,rerotate=two-query", CacheType::kF16, 3, true},
        {"tiny@vocab=300", "kvzip:budget=90", CacheType::kF16, 3, true}}) {
    SCOPED_TRACE(std::string(c.model) + ", " + c.method + ", " + std::to_string(c.come));
    const auto decoder = std::make_shared<Decoder>(Model::synthetic(c.model), 1);
    SchedulerOptions options = edit_options();
    options.cache_type = c.type;
    Scheduler with(decoder, nullptr, options);
    options.cache_reuse = 0;
    Scheduler without(decoder, nullptr, options);
    std::mt19937 random(3);
    Tokens all = random_text(random, 120);
    const Tokens answer = ask(without, chat_request(all, c.method, 8))->tokens;
    ASSERT_EQ(ask(with, chat_request(all, c.method, 8))->tokens, answer);
    append(all, answer);
    replace(all, 30, 33, random_text(random, c.come));
    append(all, random_text(random, 10));
    const auto changed = ask(with, chat_request(all, c.method, 8));
    EXPECT_EQ(changed->usage.reused == 0, c.refused) << changed->usage.reused;
    const bool equal = changed->tokens == ask(without, chat_request(all, c.method, 8))->tokens;
    EXPECT_TRUE(equal || !c.refused);
    for (Scheduler* scheduler : {&with, &without}) {
      EXPECT_EQ(scheduler->load().used_bytes, 0u);
      EXPECT_EQ(scheduler->load().reserved_bytes, 0u);
    }
  }
}

// Chats that change at random: as without the feature until the first edit; nothing exceeds its bounds, also where the
// pool is too small for all chats.
TEST(EditedHistory, RandomChanges) {
  for (const std::size_t kib : {65536, 400}) {
    SCOPED_TRACE(kib);
    SchedulerOptions options = edit_options();
    options.pool_bytes = options.prefix_bytes = kib << 10;
    Scheduler with(small_decoder(), nullptr, options);
    options.cache_reuse = 0;
    Scheduler without(small_decoder(), nullptr, options);
    std::mt19937 random(11);
    struct Chat {
      std::string method;
      Tokens all;
      bool edited = false;
    };
    std::vector<Chat> chats(8);
    for (std::size_t i = 0; i < chats.size(); ++i) chats[i].method = kChatMethods[3 * i % std::size(kChatMethods)];
    int edits = 0, equal = 0;
    for (unsigned round = 0; round < test_length(400U, 200U, 60U); ++round) {
      Chat& chat = chats[random() % chats.size()];
      if (chat.all.size() > 250) chat = {.method = chat.method, .all = {}};
      if (chat.all.size() > 40 && random() % 3 == 0) {
        const std::size_t first = random() % (chat.all.size() - 20);
        replace(chat.all, first, first + random() % 20, random_text(random, random() % 20));
      }
      append(chat.all, random_text(random, 1 + random() % 30));
      const Request request = chat_request(chat.all, chat.method, 1 + random() % 10);
      const auto answer = ask(with, request);
      const SchedulerLoad load = with.load();
      ASSERT_LE(load.peak_bytes, options.pool_bytes);
      ASSERT_LE(load.prefix_bytes, options.prefix_bytes);
      ASSERT_EQ(load.used_bytes, 0u);
      edits += answer->usage.reused > 0;
      chat.edited = chat.edited || answer->usage.reused > 0;
      if (kib == 65536 && !chat.edited) {
        ASSERT_EQ(answer->tokens, ask(without, request)->tokens) << round;
        ++equal;
      }
      append(chat.all, answer->tokens);
    }
    EXPECT_GT(edits, 3);
    EXPECT_TRUE(equal > 10 || kib != 65536);
  }
}

}  // namespace
}  // namespace palimpsest::testing
