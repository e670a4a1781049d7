// What agents say of their requests: priority, how long their caches are pinned, which session they belong to.
#include <gtest/gtest.h>

#include <thread>

#include "tests/engine/chat_fixture.h"

namespace palimpsest::testing {
namespace {

TEST(AgentRequests, WaitInOrderOfPriority) {
  SchedulerOptions options = small_options();
  options.max_sequences = 1;
  Scheduler scheduler(small_decoder(), nullptr, options);
  struct Ordered final : RequestListener {
    Ordered(std::vector<int>& order, int name) : order(order), name(name) {}
    bool written(const SampledToken&) override { return true; }
    void finished(Finish, const Usage&) override { order.push_back(name); }
    std::vector<int>& order;
    int name;
  };
  std::vector<int> order;
  int name = 0;
  for (const int priority : {0, 0, -3, 5, 5, 0, 7}) {
    Request request = chat_request({1, 2, 3}, "full", 4);
    request.priority = priority;
    scheduler.submit(request, std::make_shared<Ordered>(order, name++));
    if (name == 1) scheduler.step();  // it runs
  }
  while (scheduler.step()) {
  }
  EXPECT_EQ(order, (std::vector<int>{0, 6, 3, 4, 1, 5, 2}));
}

// A pool that holds a few chats.
struct TightPool {
  TightPool() : scheduler(small_decoder(), nullptr, options()) {}
  static SchedulerOptions options() {
    SchedulerOptions options = chat_options(std::size_t{1} << 20);
    options.prefix_bytes = std::size_t{160} << 10;
    return options;
  }
  std::shared_ptr<Answer> say(Tokens& chat, const std::string& session, int pin_seconds = 0) {
    append(chat, random_text(random, 40));
    Request request = chat_request(chat, "full", 4);
    request.session = session;
    request.pin = std::chrono::seconds(pin_seconds);
    const auto answer = ask(scheduler, request);
    append(chat, answer->tokens);
    return answer;
  }
  void other_chats(int count, int pin_seconds = 0) {
    for (int i = 0; i < count; ++i) {
      Tokens chat;
      say(chat, "", pin_seconds);
    }
  }
  Scheduler scheduler;
  std::mt19937 random{5};
};

TEST(AgentRequests, PinnedCachesAreEvictedLast) {
  for (const int pin : {0, 3600, 1}) {
    TightPool pool;
    Tokens chat;
    pool.say(chat, "", pin);
    const auto read = std::ssize(chat) - 1;
    if (pin == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    pool.other_chats(12);
    EXPECT_EQ(pool.say(chat, "")->usage.cached, pin == 3600 ? read : 0) << pin;
    if (pin != 3600) continue;
    pool.other_chats(12);  // the pin holds on for the chat
    const auto longer = std::ssize(chat) - 1;
    EXPECT_EQ(pool.say(chat, "")->usage.cached, longer);
    pool.other_chats(12, 3600);  // among pinned ones the least recently used
    EXPECT_EQ(pool.say(chat, "")->usage.cached, 0);
  }
}

TEST(AgentRequests, AClosedSessionLeavesWhatOthersUse) {
  Scheduler scheduler(small_decoder(), nullptr, chat_options());
  std::mt19937 random(6);
  const auto say = [&](Tokens& chat, const std::string& session, int scope = 0) {
    append(chat, random_text(random, 60));
    Request request = chat_request(chat, "h2o:budget=64", 4);
    request.session = session;
    request.scope = scope;
    const auto answer = ask(scheduler, request);
    append(chat, answer->tokens);
    return answer->usage.cached;
  };
  const auto close = [&](const std::string& session, int scope = 0) {
    scheduler.close_session(session, scope);
    scheduler.step();
    scheduler.step();
    return scheduler.load().prefix_bytes;
  };
  Tokens parent, child;
  say(parent, "parent");
  child = parent;
  const std::size_t before = scheduler.load().prefix_bytes;
  EXPECT_EQ(say(child, "child"), std::ssize(parent) - 1);  // a fork
  const std::size_t both = scheduler.load().prefix_bytes;
  EXPECT_EQ(close("child", 1), both);  // of another API key
  EXPECT_EQ(close("nobody"), both);
  EXPECT_LE(close("child"), before + 4096);  // pages that parent and child shared were copied
  Tokens again = child;
  EXPECT_EQ(say(again, "child"), std::ssize(parent) - 1);  // the child's own are gone
  close("child");
  const auto read = std::ssize(parent) - 1;
  EXPECT_EQ(say(parent, "parent"), read);  // the parent's are not
  const std::size_t kept = scheduler.load().prefix_bytes;
  EXPECT_LT(close("parent"), kept);
  Tokens third = parent;
  EXPECT_LT(say(third, "third"), std::ssize(parent) - 1);
}

// A session whose history another one continues finds it again: it is not the first to be evicted.
TEST(AgentRequests, AForkLeavesItsParentsHistory) {
  for (const bool named : {true, false}) {
    TightPool pool;
    Tokens parent;
    pool.say(parent, named ? "parent" : "");
    Tokens child = parent;
    for (int i = 0; i < 3; ++i) pool.say(child, named ? "child" : "");
    const auto cached = pool.say(parent, named ? "parent" : "")->usage.cached;
    EXPECT_EQ(cached == 43, named) << cached;
  }
}

}  // namespace
}  // namespace palimpsest::testing
