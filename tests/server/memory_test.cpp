// Memory maps over HTTP: events in a stream give what the session's map says; both are the cache of the same request.
#include <filesystem>
#include <map>

#include "tests/server/server_fixture.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

class MemoryTest : public ::testing::Test {
 protected:
  MemoryTest() {
    std::filesystem::create_directories(folder_);
    setup_.session_path = folder_;
  }
  ~MemoryTest() override { std::filesystem::remove_all(folder_); }
  Json map(const Running& server, const std::string& query) const {
    const auto got = server.client().Get("/v1/sessions/" + query);
    EXPECT_EQ(got->status, 200) << got->body;
    return Json::parse(got->body);
  }
  const std::string folder_ = own_file("memory");
  ServerSetup setup_;
};

// What a client knows from the events: as the page does (server/page/memory.js).
struct Followed {
  std::vector<std::string> texts;
  std::vector<std::map<long long, long long>> tables;  // position -> merged into, or -1
  std::vector<int> table_of;                           // [head]
  long long read = 0;
  Json heads;
  int events = 0;

  void advance(long long to) {
    for (; read < to; ++read)
      for (auto& table : tables) table[read] = -1;
  }
  void put(const Json& memory) {
    ++events;
    if (memory.contains("layout")) {
      table_of = memory["layout"]["tables"].get<std::vector<int>>();
      tables.resize(static_cast<std::size_t>(*std::ranges::max_element(table_of)) + 1);
    }
    EXPECT_EQ(memory["first"], texts.size());
    for (const Json& text : memory["tokens"]) texts.push_back(text);
    if (memory.contains("start")) {
      const Json& start = memory["start"];
      read = start["at"];
      for (std::size_t t = 0; t < tables.size(); ++t) {
        tables[t].clear();
        const auto ranges = start["kept"][t].get<std::vector<long long>>();
        for (std::size_t i = 0; i < ranges.size(); i += 2)
          for (long long p = ranges[i]; p < ranges[i + 1]; ++p) tables[t][p] = -1;
      }
      const auto merged = start["merged"].get<std::vector<long long>>();
      for (std::size_t i = 0; i < merged.size(); i += 3)
        tables[static_cast<std::size_t>(merged[i])][merged[i + 1]] = merged[i + 2];
    }
    const auto changes = memory["changes"].get<std::vector<long long>>();
    for (std::size_t i = 0; i < changes.size(); i += 4) {
      advance(changes[i]);
      auto& table = tables[static_cast<std::size_t>(changes[i + 1])];
      if (changes[i + 3] < 0)
        table.erase(changes[i + 2]);
      else
        table[changes[i + 2]] = changes[i + 3];
    }
    advance(memory["read"]);
    if (memory.contains("heads")) heads = memory["heads"];
  }
};

void expect_equal(const Followed& followed, const Json& map) {
  ASSERT_EQ(map["read"], followed.read);
  ASSERT_EQ(map["tokens"].size(), followed.texts.size());
  for (const Json& token : map["tokens"]) {
    const long long p = token["position"];
    int kept = 0, merged = 0;
    for (const int table : followed.table_of) {
      const auto& tokens = followed.tables[static_cast<std::size_t>(table)];
      if (const auto it = tokens.find(p); it != tokens.end()) ++(it->second < 0 ? kept : merged);
    }
    ASSERT_EQ(token["kept"], kept) << p;
    ASSERT_EQ(token["merged"], merged) << p;
    ASSERT_EQ(token["text"], followed.texts[static_cast<std::size_t>(p)]) << p;
  }
}

TEST_F(MemoryTest, EventsGiveTheSessionsMap) {
  Running server(setup_);
  for (const std::string method :
       {"streaming:budget=48", "h2o:budget=48", "ems:budget=48", "full", "snapkv:budget=48"}) {
    SCOPED_TRACE(method);
    Followed followed;
    const Json body = {{"prompt", "Once upon a time there was a dog who hid a red kite in the barn."},
                       {"max_tokens", 150},
                       {"temperature", 0},
                       {"ignore_eos", true},
                       {"stream", true},
                       {"cache", method},
                       {"memory_events", {{"layer", 1}, {"head", 0}}},
                       {"session", {{"save", "tale"}}}};
    for (const Json& event : events(server.post(kText, body)->body))
      if (event.contains("memory")) {
        EXPECT_EQ(event["memory"]["choice"], 0);
        EXPECT_TRUE(event["choices"].empty());
        followed.put(event["memory"]);
      }
    ASSERT_GE(followed.events, 1);
    const Json map = this->map(server, "tale/memory?layer=1&head=0");
    expect_equal(followed, map);
    EXPECT_EQ(map["heads"], followed.table_of.size());
    // Slots and scores of the chosen head.
    const auto head = followed.heads["2"];
    std::size_t of_head = 0;
    for (const Json& token : map["tokens"]) of_head += token.contains("slot") ? 1 : 0;
    ASSERT_EQ(head.size(), 4 * of_head);
    for (std::size_t i = 0; i < head.size(); i += 4) {
      const Json& token = map["tokens"][head[i].get<std::size_t>()];
      EXPECT_EQ(token["slot"], head[i + 1]);
      if (head[i + 2].is_number()) {
        EXPECT_NEAR(token["score"].get<double>(), head[i + 2].get<double>(),
                    1e-4 * std::abs(token["score"].get<double>()) + 1e-6);
      }
    }
    // Another prompt on the saved session: the events begin with what it holds.
    Followed later;
    Json more = body;
    more["prompt"] = " And then";
    more["session"] = {{"restore", "tale"}, {"save", "tale"}};
    for (const Json& event : events(server.post(kText, more)->body))
      if (event.contains("memory")) later.put(event["memory"]);
    expect_equal(later, this->map(server, "tale/memory"));
    EXPECT_GT(later.read, followed.read);
    for (std::size_t i = 0; i < followed.texts.size(); ++i) EXPECT_EQ(later.texts[i], followed.texts[i]);
  }
}

TEST_F(MemoryTest, ChatsThatContinueABeginningTellWhatTheyKeep) {
  setup_.scheduler.prefix_bytes = std::size_t{64} << 20;
  Running server(setup_);
  Json messages = Json::array({{{"role", "user"}, {"content", "Tell me a story about a dog and a kite."}}});
  for (int turn = 0; turn < 3; ++turn) {
    Followed followed;
    std::string text;
    const Json body = {
        {"messages", messages}, {"max_tokens", 60},         {"stream", true},        {"temperature", 0},
        {"ignore_eos", true},   {"cache", "h2o:budget=40"}, {"memory_events", true}, {"session", {{"save", "chat"}}}};
    for (const Json& event : events(server.post(kChat, body)->body)) {
      if (event.contains("memory")) followed.put(event["memory"]);
      for (const Json& choice : event["choices"]) text += choice["delta"].value("content", "");
    }
    expect_equal(followed, map(server, "chat/memory"));
    messages.push_back({{"role", "assistant"}, {"content", text}});
    messages.push_back({{"role", "user"}, {"content", "And then?"}});
  }
  EXPECT_GT(server.load().history_hits, 0);
}

TEST_F(MemoryTest, NothingIsSentUnlessAsked) {
  Running server(setup_);
  const auto body = server.post(kText, {{"prompt", "Once"}, {"max_tokens", 20}, {"stream", true}})->body;
  EXPECT_EQ(body.find("memory"), std::string::npos);
}

TEST_F(MemoryTest, Refusals) {
  Running server(setup_);
  const Json body = {{"prompt", "Once"}, {"max_tokens", 5}, {"memory_events", true}};
  const auto refused = [&](Json more, const std::string& part) {
    Json all = body;
    all.update(more);
    const auto [status, message] = server.refusal(kText, all);
    EXPECT_EQ(status, 400);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refused(Json::object(), "'memory_events' needs 'stream'");
  refused({{"stream", true}, {"n", 2}}, "one answer");
  refused({{"stream", true}, {"memory_events", 3}}, "must be true, false");
  refused({{"stream", true}, {"memory_events", {{"layer", 99}, {"head", 0}}}}, "no layer 99");
  refused({{"stream", true}, {"cache", "window-recompute:budget=32"}}, "no cache");
  EXPECT_EQ(server.client().Get("/v1/sessions/none/memory")->status, 404);
  EXPECT_EQ(server.client().Get("/v1/sessions/..%2Fx/memory")->status, 400);
  server.answer(kText, {{"prompt", "Once"}, {"max_tokens", 5}, {"session", {{"save", "s"}}}});
  EXPECT_EQ(server.client().Get("/v1/sessions/s/memory?layer=1")->status, 400);
  EXPECT_EQ(server.client().Get("/v1/sessions/s/memory?layer=1&head=77")->status, 400);
  EXPECT_EQ(server.client().Get("/v1/sessions/s/memory?max=x")->status, 400);
  EXPECT_EQ(map(server, "s/memory?from=2&max=1")["tokens"].size(), 1u);
}

}  // namespace
}  // namespace palimpsest::testing
