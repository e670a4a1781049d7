// Pinned prompts, budgets in bytes and the method auto in requests.
#include <fmt/format.h>

#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

ServerSetup with_histories() {
  ServerSetup setup;
  setup.scheduler.prefix_bytes = std::size_t{64} << 20;
  setup.scheduler.pool_bytes = std::size_t{128} << 20;
  return setup;
}

std::string method_of(const Json& answer) {
  return answer["usage"]["cache_method"];
}

// A chat of three turns, everything resent. Returns the usage of each.
std::vector<Json> chat(Running& server, const Json& cache) {
  Json messages = {{{"role", "system"}, {"content", "You are a dog called Bramble, and you live in the mill."}}};
  std::vector<Json> usage;
  for (const char* text : {"Who are you?", "Where do you live?", "Tell me a story about the church and the barn."}) {
    messages.push_back({{"role", "user"}, {"content", text}});
    Json body = {{"messages", messages}, {"max_tokens", 60}, {"seed", 1}};
    if (!cache.is_null()) body["cache"] = cache;
    const Json answer = server.answer(kChat, body);
    messages.push_back({{"role", "assistant"}, {"content", answer["choices"][0]["message"]["content"]}});
    usage.push_back(answer["usage"]);
  }
  return usage;
}

TEST(CacheMethod, APinnedSystemPromptIsTheSameInEveryTurn) {
  Running server(with_histories());
  const auto usage = chat(server, {{"method", "h2o"}, {"budget", 96}, {"pin", true}});
  const std::string method = usage.front()["cache_method"];
  EXPECT_TRUE(method.starts_with("h2o:budget=96,pin=0-")) << method;
  for (const Json& one : usage) EXPECT_EQ(one["cache_method"], method);
  for (std::size_t i = 1; i < usage.size(); ++i)
    EXPECT_GT(usage[i]["prompt_tokens_details"]["cached_tokens"], usage[i - 1]["prompt_tokens"]) << i;
  EXPECT_GT(usage.back()["evicted_tokens"], 0);
}

TEST(CacheMethod, AutoPinsTheSystemPromptOfChats) {
  Running server(with_histories());
  const auto usage = chat(server, "auto");
  const std::string method = usage.front()["cache_method"];
  EXPECT_TRUE(method.starts_with("auto:policy=keydiff,budget=") && method.find(",pin=0-") != std::string::npos)
      << method;
  for (const Json& one : usage) EXPECT_EQ(one["cache_method"], method);
  EXPECT_GT(usage.back()["prompt_tokens_details"]["cached_tokens"], usage.front()["prompt_tokens"]);
  // Without a system prompt, and where the prompt would take too much of the budget, nothing is pinned.
  const Json hello = {{{"role", "user"}, {"content", "Hello"}}};
  EXPECT_EQ(method_of(server.answer(kChat, {{"messages", hello}, {"max_tokens", 4}, {"cache", "auto"}})).find("pin"),
            std::string::npos);
  const Json small = {{"method", "auto"}, {"budget", 64}};
  EXPECT_TRUE(chat(server, small)
                  .front()["cache_method"]
                  .get<std::string>()
                  .starts_with("auto:policy=keydiff,budget=64,split=profile,schedule=step"));
}

TEST(CacheMethod, APinnedPromptOfACompletion) {
  Running server;
  const Json body = {{"prompt", {5, 6, 7, 8, 9, 10}}, {"max_tokens", 100}, {"ignore_eos", true}};
  const auto with = [&](const Json& cache) {
    Json all = body;
    all["cache"] = cache;
    return all;
  };
  EXPECT_EQ(method_of(server.answer(kText, with({{"budget", 32}, {"pin", true}}))), "streaming:budget=32,pin=0-5");
  EXPECT_EQ(method_of(server.answer(kText, with({{"budget", 32}, {"pin", false}}))), "streaming:budget=32");
  EXPECT_EQ(method_of(server.answer(kText, with({{"budget", 32}, {"pin", "2-3+9-12"}}))),
            "streaming:budget=32,pin=2-3+9-12");
  EXPECT_EQ(method_of(server.answer(kText, with({{"method", "full"}, {"pin", true}}))), "full");
  EXPECT_EQ(method_of(server.answer(kText, with({{"budget", 32}, {"pin", "prompt"}}))), "streaming:budget=32,pin=0-5");
  EXPECT_EQ(method_of(server.answer(kText, with("streaming:budget=32,pin=prompt"))), "streaming:budget=32,pin=0-5");
  const auto [code, message] = server.refusal(kText, with({{"budget", 6}, {"pin", true}}));
  EXPECT_EQ(code, 400);
  EXPECT_NE(message.find("budget 6 is below sinks 6"), std::string::npos) << message;
}

// All messages, not the system prompt alone; each turn has its own pins.
TEST(CacheMethod, AChatMayPinItsWholePrompt) {
  Running server(with_histories());
  const auto usage = chat(server, {{"method", "h2o"}, {"budget", 500}, {"pin", "prompt"}});
  for (const Json& one : usage)
    EXPECT_EQ(one["cache_method"], fmt::format("h2o:budget=500,pin=0-{}", one["prompt_tokens"].get<int>() - 1));
  const Json messages = {{{"role", "user"}, {"content", "Hello"}}};
  const auto [code, message] =
      server.refusal(kChat, {{"messages", messages}, {"cache", {{"method", "h2o"}, {"budget", 4}, {"pin", "prompt"}}}});
  EXPECT_EQ(code, 400);
  EXPECT_NE(message.find("raise it to at least"), std::string::npos) << message;
}

TEST(CacheMethod, WhatNeedsASequenceOfItsOwnIsRefused) {
  Running server;
  for (const char* method : {"h2o:recall=2", "h2o:lossless=true"}) {
    const auto [code, message] = server.refusal(kText, {{"prompt", "Once"}, {"max_tokens", 4}, {"cache", method}});
    EXPECT_EQ(code, 400);
    EXPECT_NE(message.find("is for one sequence"), std::string::npos) << message;
  }
}

TEST(CacheMethod, BudgetsInBytes) {
  Running server;
  const std::string method = method_of(server.answer(
      kText, {{"prompt", "Once"}, {"max_tokens", 4}, {"cache", {{"method", "h2o"}, {"budget", "2MiB"}}}}));
  ASSERT_TRUE(method.starts_with("h2o:budget=")) << method;
  EXPECT_GT(std::stoi(method.substr(11)), 256);
  const auto [code, message] =
      server.refusal(kText, {{"prompt", "Once"}, {"max_tokens", 4}, {"cache", {{"budget", "2MB"}}}});
  EXPECT_EQ(code, 400);
  EXPECT_NE(message.find("KiB, MiB or GiB"), std::string::npos) << message;
}

}  // namespace
}  // namespace palimpsest::testing
