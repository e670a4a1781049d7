// Hostile requests: each is answered with an error object, and the server keeps running.
#include <ctime>

#include "tests/server/server_fixture.h"
#include "tests/support/heap.h"

namespace palimpsest::testing {
namespace {

std::string grammar_body(const std::string& grammar) {
  return Json{{"prompt", "Once"}, {"max_tokens", 20}, {"grammar", grammar}}.dump();
}

std::string chain_of_rules(int count) {
  std::string out = "root ::= r0\n";
  for (int i = 0; i < count; ++i) out += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  return out + "r" + std::to_string(count) + " ::= \"a\"\n";
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(Robustness, HostileBodiesAreAnsweredWithAnError) {
  Running server;
  const std::string schema = R"({"prompt":"x","response_format":{"type":"json_schema","json_schema":{"schema":)";
  const std::vector<std::pair<std::string, std::string>> bodies = {
      {"reversed repetition", grammar_body(R"(root ::= "a"{5,2})")},
      {"long chain", grammar_body(chain_of_rules(150000))},
      {"brackets", grammar_body("root ::= " + repeated("(", 100000))},
      {"deep arrays", "{\"prompt\":" + repeated("[", 4'000'000)},
      {"deep objects", repeated("{\"a\":", 1'000'000)},
      {"a number without end", "{\"prompt\":\"x\",\"max_tokens\":" + repeated("9", 1'000'000) + "}"},
      {"an exponent without end", "{\"prompt\":\"x\",\"temperature\":1e" + repeated("9", 1000) + "}"},
      {"a tiny number", R"({"prompt":"x","n":1e-999999})"},
      {"infinity", R"({"prompt":"x","temperature":1e39})"},
      {"beyond 64 bits", R"({"prompt":"x","seed":18446744073709551616})"},
      {"minus a lot", R"({"prompt":"x","n":-9223372036854775808})"},
      {"tokens beyond 64 bits", R"({"prompt":[18446744073709551615]})"},
      {"no Unicode", "{\"prompt\":\"\xC3\x28\"}"},
      {"half a surrogate", R"({"prompt":"\ud800"})"},
      {"a name without end", "{\"prompt\":\"x\",\"" + repeated("y", 4'000'000) + "\":1}"},
      {"a cache without end", "{\"prompt\":\"x\",\"cache\":\"" + repeated("h2o:", 500'000) + "\"}"},
      {"many prompts", "{\"prompt\":[" + repeated("\"x\",", 1'000'000) + "\"x\"]}"},
      {"many messages", "{\"messages\":[" + repeated("{},", 1'000'000) + "{}]}"},
      {"many stops", "{\"prompt\":\"x\",\"stop\":[" + repeated("\"x\",", 1'000'000) + "\"x\"]}"},
      {"a deep schema", schema + repeated(R"({"type":"array","items":)", 61) + "{}" + repeated("}", 61) + "}}}"},
      {"a schema of itself", schema + R"({"$ref":"#"}}}})"},
      {"a schema that is a list", schema + "[]}}}"},
      {"a wide schema", schema + R"({"enum":[)" + repeated("1,", 1'000'000) + "1]}}}}"},
  };
  for (const auto& [name, body] : bodies) {
    auto client = server.client();
    [[maybe_unused]] const std::clock_t start = std::clock();
    const auto result = client.Post(kText, body, "application/json");
    ASSERT_TRUE(result) << name << ": " << httplib::to_string(result.error());
    EXPECT_EQ(result->status, 400) << name << ": " << result->body;
    const Json error = Json::parse(result->body, nullptr, false);
    ASSERT_TRUE(error.is_object() && error.contains("error")) << name << ": " << result->body.substr(0, 300);
    EXPECT_FALSE(error["error"]["message"].get<std::string>().empty()) << name;
    EXPECT_LT(result->body.size(), 3000u) << name;
#ifndef PALIMPSEST_SANITIZED
    // CPU time of the whole process: other work of the machine does not count.
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 5) << name;
#endif
    EXPECT_EQ(client.Get("/health")->status, 200) << name;
  }
  EXPECT_TRUE(server.idle_within(5));
  EXPECT_FALSE(server.service().failed());
  EXPECT_EQ(server.post(kText, {{"prompt", "x"}, {"max_tokens", 1}})->status, 200);
}

// The answers to one prompt share it, and its grammar: they wait for admission without copies.
TEST(Robustness, ManyAnswersToALongPromptTakeItsMemoryOnce) {
#ifdef PALIMPSEST_SANITIZED
  GTEST_SKIP() << "mallinfo2 does not count the memory of a sanitizer's allocator";
#endif
  ServerSetup setup;
  setup.server.timeout = std::chrono::milliseconds(3000);
  Running server(setup);
  const std::string body = "{\"n\":128,\"max_tokens\":1,\"prompt\":[" + repeated("3,", 300'000) + "3]}";
  const std::size_t before = heap_in_use();
  std::jthread sender([&] {
    const auto result = server.client().Post(kText, body, "application/json");
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, 504) << result->body;
  });
  for (int i = 0; i < 10'000 && server.load().waiting + server.load().running < 128; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::size_t waiting = heap_in_use();
  EXPECT_EQ(server.load().waiting + server.load().running, 128);
  EXPECT_LT(waiting - before, std::size_t{40} << 20) << "128 copies have 146 MiB";
}

TEST(Robustness, AnEvictionThatWouldHoldUpOthersIsRefused) {
  Running server;
  const std::string prompt = "{\"max_tokens\":1,\"prompt\":[" + repeated("3,", 100'000) + "3],\"cache\":";
  const auto result = server.client().Post(kText, prompt + "\"r-kv:budget=64,schedule=prompt\"}", "application/json");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 400) << result->body;
  EXPECT_NE(result->body.find("compares up to 100001 tokens"), std::string::npos) << result->body;
}

TEST(Robustness, TextsThatEachAnswerHoldsAreShort) {
  Running server;
  const auto stop = server.refusal(kText, {{"prompt", "x"}, {"stop", std::string(5000, 'y')}});
  EXPECT_EQ(stop.first, 400);
  EXPECT_NE(stop.second.find("a string of 5000 bytes: give at most 1024"), std::string::npos) << stop.second;
  const auto echo = server.refusal(kText, {{"prompt", std::string(100'000, 'y')}, {"echo", true}, {"n", 128}});
  EXPECT_EQ(echo.first, 400);
  EXPECT_NE(echo.second.find("would return 12800000 bytes of prompts"), std::string::npos) << echo.second;
}

// A hostile grammar ends its own request only.
TEST(Robustness, AGrammarThatCannotBeMetEndsOneRequestOnly) {
  Running server;
  const Json fine = {{"prompt", "Once upon a time"}, {"max_tokens", 60}, {"temperature", 0}, {"ignore_eos", true}};
  const std::string alone = server.answer(kText, fine)["choices"][0]["text"];
  std::thread hostile([&] {
    for (int i = 0; i < 20; ++i)
      server.client().Post(kText, grammar_body("root ::= w{0,500}\nw ::= [a-z ]{0,500} [a-z ]{0,500}"),
                           "application/json");
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(server.answer(kText, fine)["choices"][0]["text"], alone);
  hostile.join();
}

}  // namespace
}  // namespace palimpsest::testing
