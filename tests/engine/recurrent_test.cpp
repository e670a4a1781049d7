// Models with recurrent layers beside attention: the state is part of the sequence, whatever happens to it. Drafts:
// drafts_test.cpp. Prefixes: prefix_cache_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/scheduler/scheduler.h"
#include "palimpsest/engine/sequence/lockstep.h"
#include "palimpsest/engine/sequence/snapshot.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/scheduler_fixture.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_message.h"
#include "tests/support/own_file.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

constexpr const char* kHybrids[] = {"tiny-lfm2",   "tiny-granitehybrid", "tiny-falcon-h1",
                                    "tiny-qwen35", "tiny-qwen3next",     "tiny-nemotron_h"};

std::shared_ptr<Decoder> hybrid(const std::string& name, int threads = 1, ModelOptions options = {}) {
  SyntheticShape shape = parse_synthetic(name);
  shape.vocabulary = kVocabulary;
  return std::make_shared<Decoder>(Model::from(make_synthetic(shape), options), threads);
}

std::vector<float> state_now(const Session& session) {
  const auto now = session.cache().state().now();
  return {now.begin(), now.end()};
}

std::vector<float> copied(std::span<const float> logits) {
  return {logits.begin(), logits.end()};
}

// Differences of rounding: other kernels multiply chunks.
void expect_near(std::span<const float> a, std::span<const float> b, const std::string& where) {
  ASSERT_EQ(a.size(), b.size()) << where;
  double error = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error = std::max(error, std::abs(static_cast<double>(a[i]) - b[i]));
    size = std::max(size, std::abs(static_cast<double>(b[i])));
  }
  EXPECT_GT(size, 0) << where;
  EXPECT_LE(error, 1e-4 * size) << where;
}

class Recurrent : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Hybrids, Recurrent, ::testing::ValuesIn(kHybrids), [](const auto& info) {
  std::string name = std::string(info.param).substr(5);
  std::erase_if(name, [](char c) { return c == '-' || c == '_'; });
  return name;
});

const char* const kHybridMethods[] = {"full", "streaming:budget=24", "h2o:budget=24",
                                      "snapkv:budget=40,mechanism=shift", "kvzip:budget=32"};

TEST_P(Recurrent, ChunksAndThreadsDoNotMatter) {
  const auto text = random_tokens(50, 1, kVocabulary);
  Session one(hybrid(GetParam()), session_options("full", 1));
  const auto logits = copied(one.prefill(text));
  const auto state = state_now(one);
  for (const int chunk : {2, 3, 7, 50})
    for (const int threads : {1, 3}) {
      Session other(hybrid(GetParam(), threads), session_options("full", chunk));
      const std::string where = "chunk " + std::to_string(chunk) + ", threads " + std::to_string(threads);
      expect_near(other.prefill(text), logits, where);
      expect_near(state_now(other), state, where);
    }
}

TEST(RecurrentState, IsConstantMemoryAndCounted) {
  const auto decoder = hybrid("tiny-lfm2");
  const Hyperparameters& hyper = decoder->model().hyper();
  ASSERT_EQ(hyper.state_floats(), 2U * 256 * 2);                           // two layers, 256 channels, two inputs
  EXPECT_EQ(hybrid("tiny-granitehybrid")->model().hyper().state_floats(),  // three inputs; 8 heads of 64 x 32
            2U * (3 * (8 * 64 + 2 * 2 * 32) + 8 * 64 * 32));
  const std::size_t bytes = hyper.state_floats() * sizeof(float);
  SessionOptions options = session_options("streaming:budget=24");
  Session session(decoder, options);
  EXPECT_EQ(session.sequence().plan().bytes(10, 20).state, 2 * bytes);
  session.prefill(random_tokens(30, 1, kVocabulary));
  EXPECT_EQ(session.cache().state().bytes(), 2 * bytes);
  const auto before = session.cache().bytes_tables();
  for (const TokenId token : random_tokens(100, 2, kVocabulary)) session.decode(token);
  EXPECT_EQ(session.cache().bytes_tables(), before);
  EXPECT_EQ(session.cache().state().bytes(), 2 * bytes);

  options.draft_max = 4;
  Session drafting(decoder, options);
  EXPECT_GE(drafting.sequence().plan().bytes(10, 20).scratch,
            session.sequence().plan().bytes(10, 20).scratch + 4 * bytes);
  drafting.prefill(random_tokens(30, 1, kVocabulary));
  drafting.decode(1, std::vector<TokenId>{2, 3, 4, 5});
  drafting.accept(2);
  EXPECT_EQ(drafting.cache().state().bytes(), 6 * bytes);  // before, and after the token and each draft
}

TEST_P(Recurrent, SnapshotsContinueToTheBit) {
  const auto decoder = hybrid(GetParam());
  const auto text = random_tokens(100, 3, kVocabulary);
  const std::string path = own_file("recurrent.snap");
  for (const std::string method : kHybridMethods) {
    SCOPED_TRACE(method);
    Session first(decoder, session_options(method, 20));
    first.prefill(std::span(text).first(50));
    save_snapshot(path, first, nullptr, {});
    Session second(decoder, session_options(method, 20));
    load_snapshot(path, second, nullptr);
    EXPECT_EQ(state_now(first), state_now(second));
    for (std::size_t i = 50; i < text.size(); ++i)
      ASSERT_EQ(copied(first.decode(text[i])), copied(second.decode(text[i]))) << i;
  }
}

TEST_P(Recurrent, AStateThatIsNoNumberIsNotSaved) {
  Session session(hybrid(GetParam()), session_options("full"));
  session.prefill(random_tokens(20, 3, kVocabulary));
  auto state = state_now(session);
  state[5] = std::numeric_limits<float>::quiet_NaN();
  session.sequence().cache().state().set(state);
  EXPECT_NE(error_message([&] { save_snapshot(own_file("nan.snap"), session, nullptr, {}); }).find("recurrent state"),
            std::string::npos);
}

TEST_P(Recurrent, OnlyTheWholeTextIsForgotten) {
  const auto text = random_tokens(40, 4, kVocabulary);
  Session session(hybrid(GetParam()), session_options("full"));
  const auto logits = copied(session.prefill(text));
  const std::string message = error_message([&] { session.rewind(30); });
  EXPECT_NE(message.find("recurrent state"), std::string::npos) << message;
  EXPECT_NE(message.find("clear"), std::string::npos) << message;
  EXPECT_EQ(session.position(), 40);
  EXPECT_NE(error_message([&] { session.sequence().cache().shift(10, kEndOfText, 5); }).find("recurrent state"),
            std::string::npos);
  EXPECT_NE(error_message([&] { session.sequence().cache().drop(10, 20); }).find("recurrent state"), std::string::npos);
  session.rewind(40);  // nothing to forget
  session.rewind(0);
  expect_near(session.prefill(text), logits, "again, in other slots");
  session.clear();
  EXPECT_EQ(copied(session.prefill(text)), logits);
}

// KVzip reads the prompt twice; the second time is forgotten.
TEST_P(Recurrent, ARepeatedPromptIsReadOnce) {
  const auto text = random_tokens(40, 5, kVocabulary);
  Session once(hybrid(GetParam()), session_options("full", 16)),
      twice(hybrid(GetParam()), session_options("kvzip:budget=64", 16));
  once.prefill(text);
  twice.prefill(text);
  EXPECT_EQ(state_now(once), state_now(twice));
}

TEST_P(Recurrent, ARecomputedWindowIsATextOfItsOwn) {
  const auto text = random_tokens(60, 6, kVocabulary);
  Session window(hybrid(GetParam()), session_options("window-recompute:budget=24"));
  window.prefill(std::span(text).first(50));
  for (std::size_t i = 50; i < text.size(); ++i) {
    Session alone(hybrid(GetParam()), session_options("full"));
    const auto logits = copied(window.decode(text[i]));
    expect_near(alone.prefill(std::span(text).subspan(0, i + 1).last(static_cast<std::size_t>(window.cache().next()))),
                logits, std::to_string(i));
  }
}

// A token whose products are alike in any company: weights in panels.
TEST_P(Recurrent, TogetherIsAsAlone) {
  for (const std::string method : {"full", "streaming:budget=24", "h2o:budget=24"}) {
    const auto decoder = hybrid(std::string(GetParam()) + "@type=q8_0", 2);
    const auto options = session_options(method, 20);
    Lockstep together(decoder, options, 3);
    std::vector<std::unique_ptr<Session>> alone;
    for (int i = 0; i < 3; ++i) {
      const auto prompt = random_tokens(static_cast<std::size_t>(10 + 13 * i), static_cast<unsigned>(i), kVocabulary);
      together.session(i).prefill(prompt);
      alone.push_back(std::make_unique<Session>(hybrid(std::string(GetParam()) + "@type=q8_0", 1), options));
      alone.back()->prefill(prompt);
    }
    for (TokenId t = 0; t < 40; ++t) {
      const std::vector<TokenId> next = {t, t + 1, t + 2};
      const auto logits = together.decode(next);
      for (int i = 0; i < 3; ++i)
        ASSERT_EQ(copied(logits.subspan(at(i) * kVocabulary, kVocabulary)), copied(alone[at(i)]->decode(next[at(i)])))
            << method << ", sequence " << i << ", token " << t;
    }
  }
}

// Continuous batches, with prompts that begin alike, kept prefixes and drafts.
TEST_P(Recurrent, RequestsTogetherAreAsAlone) {
  const auto decoder = hybrid(std::string(GetParam()) + "@type=q8_0");
  SchedulerOptions options = small_options();
  options.pool_bytes = std::size_t{8} << 20;
  options.prefix_bytes = options.pool_bytes / 2;
  Scheduler scheduler(decoder, nullptr, options);
  std::mt19937 random(9);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 24; ++i) {
    Request request = random_request(random);
    request.method = parse_method(i % 3 == 0 ? "full" : i % 3 == 1 ? "streaming:budget=40" : "h2o:budget=40");
    if (i % 3 < 2) request.drafts.max = 4;
    requests.push_back(request);
    answers.push_back(std::make_shared<Answer>());
    scheduler.submit(request, answers.back());
  }
  int steps = 0;
  while (scheduler.step()) ASSERT_LT(++steps, 3000);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(answers[i]->how, Finish::kLength) << i;
    SessionOptions alone = session_options("full", kChunk);
    alone.method = requests[i].method;
    alone.draft_max = requests[i].drafts.max;
    Session session(decoder, alone);
    Sampler sampler(requests[i].sampler, nullptr, kVocabulary);
    for (const TokenId t : requests[i].prompt) sampler.accept(t);
    std::vector<TokenId> tokens = {sampler.sample(session.prefill(requests[i].prompt))};
    while (static_cast<long long>(tokens.size()) < requests[i].max_tokens)
      tokens.push_back(sampler.sample(session.decode(tokens.back())));
    EXPECT_EQ(answers[i]->tokens, tokens) << i;
  }
  EXPECT_GT(scheduler.load().prefix_hits, 0);
  EXPECT_EQ(scheduler.load().reserved_bytes, 0u);
}

// Stock ggml operators give the same as ours.
TEST_P(Recurrent, PortablePathIsAsTheFastOne) {
  const auto text = random_tokens(40, 7, kVocabulary);
  Session fast(hybrid(GetParam()), session_options("streaming:budget=24", 7));
  Session portable(hybrid(GetParam(), 1, {.portable = true}), session_options("streaming:budget=24", 7));
  expect_near(portable.prefill(std::span(text).first(30)), copied(fast.prefill(std::span(text).first(30))), "prompt");
  for (std::size_t i = 30; i < text.size(); ++i)
    expect_near(portable.decode(text[i]), copied(fast.decode(text[i])), std::to_string(i));
  expect_near(state_now(portable), state_now(fast), "state");
}

}  // namespace
}  // namespace palimpsest::testing
