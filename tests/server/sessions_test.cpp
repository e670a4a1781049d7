// Sessions saved by clients: they continue exactly, and give no access to other files.
#include "palimpsest/server/sessions.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "palimpsest/core/new_file.h"
#include "tests/server/server_fixture.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

class SessionsTest : public ::testing::Test {
 protected:
  SessionsTest() {
    fs::create_directories(folder_);
    setup_.session_path = folder_;
  }
  ~SessionsTest() override { fs::remove_all(folder_); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  const std::string folder_ = own_file("sessions");
  ServerSetup setup_;
};

TEST_F(SessionsTest, WhatWasSavedGoesOnAsIfNothingHadBeenBetween) {
  Running server(setup_);
  for (const std::string method : {"streaming:budget=64", "h2o:budget=48,positions=cache", "full",
                                   "knorm:budget=64,mechanism=append", "paged-eviction:budget=64", "ems:budget=64"})
    for (const bool stream : {false, true}) {
      const Json body = {
          {"prompt", "Once upon a time"}, {"max_tokens", 120}, {"seed", 7}, {"ignore_eos", true}, {"cache", method}};
      const std::string whole = text_of(server.answer(kText, body));
      Json first = body, second = {{"session", {{"restore", "tale"}}}, {"max_tokens", 70}, {"ignore_eos", true}};
      first["max_tokens"] = 50;
      first["session"] = {{"save", "tale"}};
      std::string text;
      if (stream) {
        first["stream"] = second["stream"] = true;
        for (const Json& part : {first, second}) {
          const auto pieces = events(server.post(kText, part)->body);
          for (const Json& piece : pieces) text += text_of(piece);
          EXPECT_EQ(pieces.back().contains("session"), part["session"].contains("save"));
        }
      } else {
        const Json answer = server.answer(kText, first);
        EXPECT_EQ(answer["session"]["id"], "tale");
        EXPECT_EQ(answer["session"]["bytes"], fs::file_size(folder_ + "/tale.session"));
        const Json rest = server.answer(kText, second);
        EXPECT_FALSE(rest.contains("session"));
        EXPECT_EQ(rest["usage"]["prompt_tokens"], 0);
        text = text_of(answer) + text_of(rest);
      }
      EXPECT_EQ(text, whole) << method;
    }
  EXPECT_TRUE(server.idle_within(5));
  EXPECT_EQ(files(), 1u);
}

TEST_F(SessionsTest, ASessionOutlivesTheServerAndServesManyTimes) {
  const Json more = {{"session", {{"restore", "tale"}}}, {"prompt", " The cat"}, {"max_tokens", 30}, {"seed", 3}};
  std::string text;
  {
    Running server(setup_);
    server.answer(kText, {{"prompt", "Once upon a time"}, {"max_tokens", 80}, {"session", {{"save", "tale"}}}});
    text = text_of(server.answer(kText, more));
    EXPECT_EQ(text_of(server.answer(kText, more)), text);
  }
  Running server(setup_);
  EXPECT_EQ(text_of(server.answer(kText, more)), text);
}

TEST_F(SessionsTest, AChatGoesOnTurnByTurn) {
  Running server(setup_);
  const Json hello = {{"role", "user"}, {"content", "Tell me a story."}},
             next = {{"role", "user"}, {"content", "And?"}};
  const Json asked = {{"temperature", 0}, {"max_tokens", 30}, {"cache", "full"}};
  Json first = asked, second = asked, all = asked;
  first["messages"] = {hello};
  first["session"] = {{"save", "chat"}};
  const Json said = server.answer(kChat, first)["choices"][0]["message"];
  second["messages"] = {next};
  second["session"] = {{"restore", "chat"}, {"save", "chat"}};
  const Json answer = server.answer(kChat, second)["choices"][0]["message"]["content"];
  // The whole conversation, read again, is the same text; tokens may differ at the boundary of an answer and the next
  // turn.
  all["messages"] = {hello, {{"role", "assistant"}, {"content", said["content"]}}, next};
  EXPECT_EQ(server.answer(kChat, all)["choices"][0]["message"]["content"], answer);
  second["messages"] = {hello, said, next};
  EXPECT_EQ(server.refusal(kChat, second).first, 400);
}

// The tokens of a saved session, and how many of them are kept.
struct SavedText {
  std::vector<int> tokens;
  int kept = 0;
};
SavedText text_of_session(const Running& server, const std::string& name) {
  SavedText out;
  const Json map = Json::parse(server.client().Get("/v1/sessions/" + name + "/memory")->body);
  for (const Json& token : map["tokens"]) {
    out.tokens.push_back(token["id"].get<int>());
    out.kept += token["kept"] > 0 ? 1 : 0;
  }
  return out;
}

TEST_F(SessionsTest, AreEdited) {
  Running server(setup_);
  for (const std::string method : {"full", "h2o:budget=48", "streaming:budget=64"}) {
    SCOPED_TRACE(method);
    server.answer(kText, {{"prompt", "Once upon a time"},
                          {"max_tokens", 30},
                          {"seed", 7},
                          {"ignore_eos", true},
                          {"cache", method},
                          {"session", {{"save", "tale"}}}});
    const SavedText before = text_of_session(server, "tale");
    const int length = static_cast<int>(before.tokens.size());
    std::vector<int> wanted = before.tokens;
    wanted.erase(wanted.begin() + 10, wanted.begin() + 13);
    wanted.insert(wanted.begin() + 10, {5, 6, 7, 8});
    for (const std::string mode : {"reuse", "exact"}) {
      SCOPED_TRACE(mode);
      const Json edited =
          server.answer("/v1/sessions/tale/edit",
                        {{"first", 10}, {"last", 13}, {"text", {5, 6, 7, 8}}, {"mode", mode}, {"save", mode}});
      EXPECT_EQ(edited["id"], mode);
      const int read = edited["usage"]["prompt_tokens"];
      if (mode == "reuse") {
        EXPECT_EQ(read, 4);
      } else {
        EXPECT_GE(read, length - 13 + 4);
      }
      const SavedText after = text_of_session(server, mode);
      EXPECT_EQ(after.tokens, wanted);
      EXPECT_EQ(after.kept, length + 1);
      const Json goes_on =
          server.answer(kText, {{"session", {{"restore", mode}}}, {"max_tokens", 20}, {"ignore_eos", true}});
      EXPECT_EQ(goes_on["usage"]["completion_tokens"], 20);
    }
    EXPECT_EQ(text_of_session(server, "tale").tokens, before.tokens) << "saved under other names";
    // Mode exact is the session of the edited prompt.
    const Json removed = server.answer("/v1/sessions/tale/edit", {{"first", 20}, {"last", 25}, {"text", ""}});
    EXPECT_EQ(removed["id"], "tale");
    EXPECT_EQ(text_of_session(server, "tale").tokens.size(), before.tokens.size() - 5);
  }
  const auto refused = [&](const Json& body) { return server.refusal("/v1/sessions/tale/edit", body); };
  using Refusal = std::pair<int, std::string>;
  EXPECT_EQ(refused({{"first", 5}, {"last", 4}}),
            Refusal(400, "the range 5:4 is out of order: give A:B with 0 <= A <= B, the tokens A to B - 1"));
  EXPECT_EQ(refused({{"first", 5}, {"last", 400}}).first, 400);
  EXPECT_NE(refused({{"first", 5}, {"last", 400}}).second.find("is beyond the end of the text"), std::string::npos);
  EXPECT_EQ(refused({{"first", 5}}).first, 400);
  EXPECT_EQ(refused({{"first", 5}, {"last", 6}, {"mode", "both"}}).first, 400);
  EXPECT_EQ(refused({{"first", 5}, {"last", 6}, {"save", "../x"}}).first, 400);
  EXPECT_EQ(refused({{"first", 5}, {"last", 6}, {"text", {1 << 20}}}).first, 400);
  EXPECT_EQ(server.refusal("/v1/sessions/none/edit", {{"first", 5}, {"last", 6}}).first, 404);
  EXPECT_TRUE(server.idle_within(5));
}

TEST_F(SessionsTest, AreListedAndDeleted) {
  Running server(setup_);
  auto client = server.client();
  const auto listed = [&] { return Json::parse(client.Get("/v1/sessions")->body)["data"]; };
  EXPECT_TRUE(listed().empty());
  for (const char* name : {"b", "a.1"})
    server.answer(kText, {{"prompt", "x"}, {"max_tokens", 2}, {"session", {{"save", name}}}});
  std::ofstream(folder_ + "/stranger.txt") << "not ours";
  ASSERT_EQ(listed().size(), 2u);
  EXPECT_EQ(listed()[0]["id"], "a.1");
  EXPECT_GT(listed()[0]["bytes"], 1000);
  EXPECT_GT(listed()[0]["created"], 1'600'000'000);
  EXPECT_EQ(Json::parse(client.Delete("/v1/sessions/b")->body)["deleted"], true);
  EXPECT_EQ(client.Delete("/v1/sessions/b")->status, 404);
  EXPECT_EQ(client.Delete("/v1/sessions/stranger.txt")->status, 404);
  EXPECT_EQ(client.Delete("/v1/sessions/..%2fstranger.txt")->status, 400);
  EXPECT_EQ(client.Get("/v1/sessions/a.1")->status, 405);
  EXPECT_EQ(client.Post("/v1/sessions")->status, 405);
  EXPECT_EQ(files(), 2u);
}

TEST_F(SessionsTest, BadInputIsRefusedWithWhatIsWrong) {
  Running server(setup_);
  const auto refused = [&](const Json& more, int status, const std::string& part) {
    Json body = {{"prompt", "x"}, {"max_tokens", 3}};
    body.update(more);
    const auto [code, message] = server.refusal(kText, body);
    EXPECT_EQ(code, status) << body;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  server.answer(kText, {{"prompt", "x"}, {"max_tokens", 5}, {"cache", "h2o:budget=40"}, {"session", {{"save", "s"}}}});
  for (const char* name : {"", ".", "..", "../x", "/etc/passwd", ".hidden", "a b", "a/b", "\xC3\xA9"})
    refused({{"session", {{"save", name}}}}, 400, "'session.save' must be");
  refused({{"session", {{"save", std::string(65, 'a')}}}}, 400, "'session.save' must be");
  refused({{"session", {{"save", std::string("a\0b", 3)}}}}, 400, "'session.save' must be");
  refused({{"session", "s"}}, 400, "'session' must be a JSON object");
  refused({{"session", {{"restore", 3}}}}, 400, "'session.restore' must be a string");
  refused({{"session", {{"load", "s"}}}}, 400, "'session.load' is not supported");
  refused({{"session", {{"restore", "none"}}}}, 404, "there is no session 'none'");
  refused({{"session", {{"restore", "s"}}}, {"cache", "h2o:budget=41"}}, 400, "was saved with --method h2o");
  refused({{"session", {{"restore", "s"}}}, {"n", 2}}, 400, "one answer");
  refused({{"session", {{"save", "s"}}}, {"prompt", {"x", "y"}}}, 400, "one answer");
  refused({{"session", {{"restore", "s"}}}, {"prompt", ""}, {"seed", 3}}, 400, "leave out 'seed'");
  refused({{"session", {{"restore", "s"}}}, {"prompt", ""}, {"grammar", "root ::= \"a\""}}, 400, "a grammar applies");

  const auto damage = [&](const std::string& bytes) { std::ofstream(folder_ + "/bad.session") << bytes; };
  std::ifstream in(folder_ + "/s.session", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  const Json bad = {{"session", {{"restore", "bad"}}}};
  damage("hello");
  refused(bad, 400, "session 'bad': is no snapshot");
  damage(whole.substr(0, whole.size() / 2));
  refused(bad, 400, "checksum");
  std::string flipped = whole;
  flipped[flipped.size() / 2] ^= 1;
  damage(flipped);
  refused(bad, 400, "checksum");
  EXPECT_TRUE(server.idle_within(5));

  ServerSetup other = setup_;  // a different key type
  other.scheduler.cache_type = CacheType::kF16;
  Running f16(other);
  const auto [status, message] = f16.refusal(kText, {{"prompt", "x"}, {"session", {{"restore", "s"}}}});
  EXPECT_EQ(status, 400);
  EXPECT_NE(message.find("session 's': was saved with --cache-type f32: give that"), std::string::npos) << message;
  other.session_path.clear();
  Running none(other);
  EXPECT_EQ(none.refusal(kText, {{"prompt", "x"}, {"session", {{"save", "s"}}}}).first, 400);
  EXPECT_EQ(none.client().Get("/v1/sessions")->status, 400);
  EXPECT_THROW(Sessions(folder_ + "/nowhere", 1), Error);
}

TEST_F(SessionsTest, TheirSpaceIsBounded) {
  setup_.session_space = 1'000'000;
  Running server(setup_);
  const auto save = [&](const std::string& name) {
    return server.post(kText, {{"prompt", "Once"},
                               {"max_tokens", 100},
                               {"ignore_eos", true},
                               {"session", {{"save", name}}},
                               {"cache", "streaming:budget=64"}});
  };
  int saved = 0;
  while (saved < 100 && save("s" + std::to_string(saved))->status == 200) ++saved;
  EXPECT_GT(saved, 0);
  EXPECT_LT(saved, 100);
  const auto full = save("one-more");
  EXPECT_EQ(full->status, 507);
  EXPECT_EQ(Json::parse(full->body)["error"]["code"], "session_space");
  EXPECT_EQ(save("s0")->status, 200) << "in the place of an older one";
  EXPECT_EQ(server.client().Delete("/v1/sessions/s0")->status, 200);
  EXPECT_EQ(save("one-more")->status, 200);
  EXPECT_EQ(files(), static_cast<std::size_t>(saved));
}

// Killed during a write: the temporary file beside a session is no session and is removed.
TEST_F(SessionsTest, WhatWasNeverFinishedIsRemoved) {
  std::ofstream(folder_ + "/tale.session.new.123.4") << "half";
  Running server(setup_);
  EXPECT_EQ(files(), 0u);
}

// Another process truncates a session while its restore waits: the request fails, the server runs on.
TEST_F(SessionsTest, MayShrinkWhileItsRestoreWaits) {
  setup_.scheduler.max_sequences = 1;
  Running server(setup_);
  const Json more = {{"max_tokens", 5}, {"ignore_eos", true}, {"session", {{"restore", "tale"}}}};
  server.answer(kText, {{"prompt", "Once upon a time"},
                        {"max_tokens", 200},
                        {"ignore_eos", true},
                        {"cache", "full"},
                        {"session", {{"save", "tale"}}}});
  std::thread busy([&] {
    server.answer(kText, {{"prompt", "Once"}, {"max_tokens", 1500}, {"ignore_eos", true}, {"cache", "streaming"}});
  });
  while (server.load().running == 0) std::this_thread::yield();
  std::pair<int, std::string> refused;
  std::thread waiting([&] { refused = server.refusal(kText, more); });
  while (server.load().waiting == 0) std::this_thread::yield();
  fs::resize_file(folder_ + "/tale.session", 0);
  busy.join();
  waiting.join();
  EXPECT_EQ(refused.first, 500);
  EXPECT_EQ(refused.second, "session 'tale': became shorter while it was read; use an older copy");
  EXPECT_EQ(server.refusal(kText, more).first, 400) << "damaged";
  EXPECT_TRUE(server.idle_within(5));
}

// Only regular files are sessions: nothing waits for a FIFO's other end.
TEST_F(SessionsTest, NothingWaitsForAFifo) {
  for (const char* name : {"/pipe.session", "/tale.session.new.1.2"})
    ASSERT_EQ(::mkfifo((folder_ + name).c_str(), 0600), 0);
  fs::create_directory(folder_ + "/folder.session");
  Running server(setup_);
  EXPECT_TRUE(Json::parse(server.client().Get("/v1/sessions")->body)["data"].empty());
  for (const std::string name : {"pipe", "folder"}) {
    EXPECT_EQ(server.refusal(kText, {{"prompt", "x"}, {"session", {{"restore", name}}}}),
              (std::pair<int, std::string>(404, "there is no session '" + name + "'")));
    EXPECT_EQ(server.client().Get("/v1/sessions/" + name + "/memory")->status, 404);
    EXPECT_EQ(server.client().Delete("/v1/sessions/" + name)->status, 404);
  }
  EXPECT_EQ(files(), 3u);
}

TEST_F(SessionsTest, AFolderThatIsGoneIsTheServersFault) {
  Running server(setup_);
  const Json save = {{"prompt", "x"}, {"max_tokens", 2}, {"session", {{"save", "tale"}}}};
  server.answer(kText, save);
  fs::remove_all(folder_);
  const std::string expected = "the folder of sessions cannot be read (No such file or directory): try again later";
  const auto said = [](const httplib::Result& result) {
    return std::pair<int, std::string>(result->status, Json::parse(result->body)["error"]["message"]);
  };
  const std::pair<int, std::string> gone(503, expected);
  EXPECT_EQ(said(server.client().Get("/v1/sessions")), gone);
  EXPECT_EQ(said(server.client().Delete("/v1/sessions/tale")), gone);
  EXPECT_EQ(said(server.post(kText, save)), gone);
  EXPECT_EQ(said(server.post(kText, {{"prompt", "x"}, {"session", {{"restore", "tale"}}}})), gone);
}

httplib::Headers with_key(const std::string& key) {
  return {{"Authorization", "Bearer " + key}};
}

// Clients of one key neither see nor touch the sessions of another's, whatever the order of the keys.
TEST_F(SessionsTest, BelongToTheirKey) {
  setup_.server.api_keys = {"alpha-key", "beta-key"};
  const auto save = [](const std::string& prompt) {
    return Json{{"prompt", prompt}, {"max_tokens", 5}, {"seed", 3}, {"session", {{"save", "tale"}}}};
  };
  const Json restore = {{"max_tokens", 5}, {"prompt", " and"}, {"seed", 3}, {"session", {{"restore", "tale"}}}};
  const auto listed = [](const Running& server, const std::string& key) {
    return Json::parse(server.client().Get("/v1/sessions", with_key(key))->body)["data"];
  };
  const auto absent = [&](const Running& server, const std::string& key) {
    auto client = server.client();
    EXPECT_TRUE(listed(server, key).empty());
    EXPECT_EQ(server.post(kText, restore, with_key(key))->status, 404);
    EXPECT_EQ(server.post("/v1/sessions/tale/edit", {{"first", 0}, {"last", 1}}, with_key(key))->status, 404);
    EXPECT_EQ(client.Get("/v1/sessions/tale/memory", with_key(key))->status, 404);
    EXPECT_EQ(client.Delete("/v1/sessions/tale", with_key(key))->status, 404);
  };
  std::string text;
  {
    Running server(setup_);
    EXPECT_EQ(server.post(kText, save("Once upon a time"), with_key("alpha-key"))->status, 200);
    absent(server, "beta-key");
    text = text_of(Json::parse(server.post(kText, restore, with_key("alpha-key"))->body));
    EXPECT_EQ(server.post(kText, save("The cat"), with_key("beta-key"))->status, 200);
    EXPECT_EQ(listed(server, "alpha-key").size(), 1u);
    EXPECT_EQ(server.client().Delete("/v1/sessions/tale", with_key("beta-key"))->status, 200);
    const std::string metrics = server.client().Get("/metrics", with_key("beta-key"))->body;
    for (const char* secret : {"tale", "alpha-key", "beta-key", "key-"})
      EXPECT_EQ(metrics.find(secret), std::string::npos) << secret;
  }
  setup_.server.api_keys = {"new-key", "beta-key", "alpha-key"};
  {
    Running server(setup_);
    EXPECT_EQ(text_of(Json::parse(server.post(kText, restore, with_key("alpha-key"))->body)), text);
    absent(server, "new-key");
    absent(server, "beta-key");
  }
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name.starts_with("key-") && name.size() == 36) << name;
    EXPECT_EQ(fs::status(entry).permissions(), fs::perms::owner_all);
  }
  setup_.shared_sessions = true;
  Running server(setup_);
  EXPECT_TRUE(listed(server, "alpha-key").empty()) << "its own are not those of all";
  EXPECT_EQ(server.post(kText, save("Once"), with_key("alpha-key"))->status, 200);
  EXPECT_EQ(server.post(kText, restore, with_key("beta-key"))->status, 200);
}

// A key that fills its space takes none from others.
TEST_F(SessionsTest, EachKeyHasItsOwnSpace) {
  setup_.server.api_keys = {"first", "second"};
  setup_.session_space = 1'000'000;
  Running server(setup_);
  const auto save = [&](const std::string& key, const std::string& name) {
    return server
        .post(kText,
              {{"prompt", "Once"},
               {"max_tokens", 100},
               {"ignore_eos", true},
               {"session", {{"save", name}}},
               {"cache", "streaming:budget=64"}},
              with_key(key))
        ->status;
  };
  int saved = 0;
  while (saved < 100 && save("first", "s" + std::to_string(saved)) == 200) ++saved;
  EXPECT_GT(saved, 0);
  EXPECT_LT(saved, 100);
  EXPECT_EQ(save("second", "s"), 200);
}

// Two servers, one folder: a session goes on at the other server, and a server that starts takes nothing from one that
// writes.
TEST_F(SessionsTest, ServersShareAFolder) {
  Running first(setup_);
  const Json begin = {{"prompt", "Once upon a time"}, {"max_tokens", 40},         {"seed", 7},
                      {"ignore_eos", true},           {"cache", "h2o:budget=48"}, {"session", {{"save", "tale"}}}};
  const Json more = {{"max_tokens", 40}, {"ignore_eos", true}, {"session", {{"restore", "tale"}}}};
  first.answer(kText, begin);
  const std::string text = text_of(first.answer(kText, more));
  NewFile written(folder_ + "/other.session");
  written.write(std::as_bytes(std::span("half")));
  {
    Running second(setup_);
    EXPECT_EQ(files(), 2u) << "the session, and the file that is being written";
    EXPECT_EQ(text_of(second.answer(kText, more)), text);
    EXPECT_EQ(second.client().Delete("/v1/sessions/tale")->status, 200);
  }
  EXPECT_EQ(first.refusal(kText, more).first, 404) << "removed by the other server";
  written.commit();
  EXPECT_TRUE(fs::exists(folder_ + "/other.session"));
}

}  // namespace
}  // namespace palimpsest::testing
