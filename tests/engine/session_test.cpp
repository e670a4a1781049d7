// One sequence over a small random model: chunks give the same as token by token; the budget is a bound.
#include "palimpsest/engine/sequence/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<const Model> synthetic_model() {
  static const std::shared_ptr<const Model> model = Model::from(make_synthetic({.vocabulary = 96,
                                                                                .width = 64,
                                                                                .layers = 2,
                                                                                .feed_forward = 96,
                                                                                .query_heads = 4,
                                                                                .kv_heads = 2,
                                                                                .head_dim = 16}));
  return model;
}

using Logits = std::vector<std::vector<float>>;

Logits read_all(const std::string& method, int chunk, std::span<const TokenId> tokens) {
  Session session(std::make_shared<Decoder>(synthetic_model(), 1), session_options(method, chunk));
  Logits out;
  session.read(tokens, [&](long long index, std::span<const float> logits) {
    ASSERT_EQ(index, static_cast<long long>(out.size()));
    out.emplace_back(logits.begin(), logits.end());
  });
  return out;
}

// The largest difference over all tokens, relative to the spread of the token's logits.
double difference(const Logits& a, const Logits& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    double square = 0, delta = 0;
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      square += a[i][j] * a[i][j];
      delta = std::max(delta, std::abs(double{a[i][j]} - b[i][j]));
    }
    worst = std::max(worst, delta / std::sqrt(square / static_cast<double>(a[i].size())));
  }
  return worst;
}

constexpr double kSame = 2e-5;

const char* const kEveryMethod[] = {
    "full",
    "streaming:budget=24",
    "streaming:budget=24,mechanism=shift",
    "streaming:budget=24,sinks=0",
    "streaming:budget=24,positions=original",
    "streaming:budget=24,rerotate=fused",
    "streaming:budget=24,every=8",
    "streaming:budget=24,every=8,mechanism=shift",
    "streaming:budget=24,every=8,positions=original",
    "streaming:budget=5,sinks=4",
};

TEST(Session, ChunksGiveWhatTokenByTokenGives) {
  const auto tokens = random_tokens(150, 1);
  for (const char* method : kEveryMethod) {
    SCOPED_TRACE(method);
    const Logits single = read_all(method, 1, tokens);
    ASSERT_EQ(single.size(), tokens.size());
    for (const int chunk : {7, 64, 512}) EXPECT_LT(difference(single, read_all(method, chunk, tokens)), kSame) << chunk;
  }
}

TEST(Session, ReadingPrefillingAndDecodingAgree) {
  const auto tokens = random_tokens(90, 2);
  for (const char* method : kEveryMethod) {
    SCOPED_TRACE(method);
    const Logits read = read_all(method, 32, tokens);
    Session session(std::make_shared<Decoder>(synthetic_model(), 1), session_options(method, 32));
    const auto head = std::span(tokens).first(50);
    auto logits = session.prefill(head);
    Logits last = {{logits.begin(), logits.end()}};
    EXPECT_LT(difference(last, {read[49]}), kSame);
    for (std::size_t i = 50; i < tokens.size(); ++i) {
      logits = session.decode(tokens[i]);
      last = {{logits.begin(), logits.end()}};
      ASSERT_LT(difference(last, {read[i]}), kSame) << i;
    }
  }
}

// EQUIP's theorem 1: the mechanism and the way to keep positions do not change a result.
TEST(Session, MechanismAndRotationNeverChangeAResult) {
  const auto tokens = random_tokens(200, 3);
  const Logits base = read_all("streaming:budget=32,mechanism=shift,rerotate=fused", 1, tokens);
  for (const char* method :
       {"streaming:budget=32", "streaming:budget=32,rerotate=fused", "streaming:budget=32,mechanism=shift",
        "streaming:budget=32,rerotate=two-query", "streaming:budget=32,rerotate=cached-half",
        "streaming:budget=32,rerotate=recompute", "streaming:budget=32,mechanism=shift,rerotate=cached-half"})
    EXPECT_LT(difference(base, read_all(method, 1, tokens)), kSame) << method;
  // The comparison can fail: these are different methods.
  for (const char* method : {"streaming:budget=32,positions=original", "streaming:budget=31", "full"})
    EXPECT_GT(difference(base, read_all(method, 1, tokens)), 1e-3) << method;
}

TEST(Session, TheBudgetHoldsInEveryStep) {
  const auto tokens = random_tokens(120, 4);
  for (const int interval : {1, 8}) {
    const std::string method = "streaming:budget=20,every=" + std::to_string(interval);
    Session session(std::make_shared<Decoder>(synthetic_model(), 1), session_options(method));
    session.prefill(std::span(tokens).first(60));
    int min = 1000, max = 0;
    for (std::size_t i = 60; i < tokens.size(); ++i) {
      session.decode(tokens[i]);
      min = std::min(min, session.cache().occupied());
      max = std::max(max, session.cache().occupied());
    }
    EXPECT_EQ(min, 20);
    EXPECT_EQ(max, 20 + interval - 1);
    EXPECT_EQ(session.position(), 120);
    EXPECT_EQ(session.cache().evicted(), 120 - session.cache().occupied());
  }
}

TEST(Session, StopsBetweenChunks) {
  const auto tokens = random_tokens(100, 5);
  Session session(std::make_shared<Decoder>(synthetic_model(), 1), session_options("full", 10));
  std::vector<long long> seen;
  session.prefill(tokens, [&](long long done, long long total) {
    EXPECT_EQ(total, 100);
    seen.push_back(done);
    return done < 30;
  });
  EXPECT_EQ(seen, (std::vector<long long>{10, 20, 30}));
  EXPECT_EQ(session.position(), 30);
}

TEST(Session, AfterClearItIsNew) {
  const auto tokens = random_tokens(60, 6);
  Session session(std::make_shared<Decoder>(synthetic_model(), 1), session_options("streaming:budget=16"));
  const auto first = session.prefill(tokens);
  const Logits before = {{first.begin(), first.end()}};
  session.clear();
  EXPECT_EQ(session.position(), 0);
  const auto second = session.prefill(tokens);
  EXPECT_EQ(before[0], (std::vector<float>{second.begin(), second.end()}));
}

TEST(Session, RefusesMoreMemoryThanItsLimit) {
  SessionOptions options = session_options("full");
  options.memory_limit = 40 * 1024;
  Session session(std::make_shared<Decoder>(synthetic_model(), 1), options);
  const auto tokens = random_tokens(200, 7);
  EXPECT_THROW(session.prefill(tokens), Error);
}

TEST(Session, RefusesImpossibleOptions) {
  const auto decoder = std::make_shared<Decoder>(synthetic_model(), 1);
  EXPECT_THROW(Session(decoder, session_options("full", 0)), Error);
  EXPECT_THROW(Session(decoder, session_options("streaming:budget=3")), Error);
  SessionOptions options = session_options("full");
  options.page_size = 17;
  EXPECT_THROW(Session(decoder, options), Error);

  // q8_0 keys are rounded once, on insert.
  PlanTarget target{.shape = {.geometry = HeadGeometry::uniform(1, 1, 32, 32)}, .positions = PositionKind::kRotary};
  for (const char* how : {"recompute", "delta"}) {
    const Method method = parse_method(std::string("streaming:budget=32,mechanism=shift,rerotate=") + how);
    target.shape.geometry = target.shape.geometry.with_types(CacheType::kQ8_0, CacheType::kQ8_0);
    EXPECT_THROW(MethodPlan(method, target), Error) << how;
    target.shape.geometry = target.shape.geometry.with_types(CacheType::kQ8_0, CacheType::kF16);
    EXPECT_THROW(MethodPlan(method, target), Error) << how;
    target.shape.geometry = target.shape.geometry.with_types(CacheType::kF16, CacheType::kQ8_0);
    EXPECT_NO_THROW(MethodPlan(method, target)) << how;
    target.shape.geometry = target.shape.geometry.with_types(CacheType::kF16, CacheType::kF16);
    EXPECT_NO_THROW(MethodPlan(method, target)) << how;
  }
}

// A text must not exceed the table of learned positions; window-recompute never does.
TEST(Session, LearnedPositionsEnd) {
  const auto decoder = std::make_shared<Decoder>(Model::synthetic("tiny-gpt2@vocab=300@context=64"), 1);
  const auto read = [&](const char* method) {
    SessionOptions options;
    options.method = parse_method(method);
    Session session(decoder, options);
    for (int i = 0; i < 70; ++i) session.decode(i);
  };
  EXPECT_NO_THROW(read("window-recompute:budget=32"));
  for (const char* method : {"full", "streaming:budget=32,positions=original"}) {
    try {
      read(method);
      ADD_FAILURE() << method;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("position 64 exceeds the model's 64"), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(read("streaming:budget=32"), Error);
}

// With schedule `prompt` no eviction follows the prompt, so attention weights are not collected in decode.
TEST(Session, CollectsWhatCanStillDecide) {
  const auto decoder = std::make_shared<Decoder>(synthetic_model(), 1);
  const auto collects = [&](const char* method, bool prompt) {
    SessionOptions options;
    options.method = parse_method(method);
    Session session(decoder, options);
    const std::vector<TokenId> tokens(60, 5);
    if (!prompt) session.prefill(tokens);
    Sequence& sequence = session.sequence();
    if (prompt)
      sequence.read(tokens);
    else
      sequence.read(7);
    const SequenceStep step = sequence.next();
    return step.weights != nullptr || step.report_queries;
  };
  for (const char* method : {"snapkv:budget=40", "h2o:budget=40,schedule=prompt", "adakv:budget=40",
                             "expected-attention:budget=40,every=1,schedule=prompt"}) {
    EXPECT_TRUE(collects(method, true)) << method;
    EXPECT_FALSE(collects(method, false)) << method;
  }
  for (const char* method : {"snapkv:budget=40,schedule=prompt+step", "h2o:budget=40", "expected-attention:budget=40"})
    for (const bool prompt : {true, false}) EXPECT_TRUE(collects(method, prompt)) << method;
}

TEST(AttentionRule, FollowsTheMethod) {
  const auto rule = [](const char* method, PositionKind kind = PositionKind::kRotary) {
    return attention_rule(parse_method(method), kind);
  };
  EXPECT_EQ(rule("full").rotation, Rotation::kOnWrite);
  EXPECT_EQ(rule("full").window, INT32_MAX);
  EXPECT_EQ(rule("full", PositionKind::kNone).rotation, Rotation::kNever);

  const AttentionRule streaming = rule("streaming:budget=100,sinks=4");
  EXPECT_EQ(streaming.rotation, Rotation::kOnWrite);
  EXPECT_TRUE(streaming.two_query);
  EXPECT_EQ(streaming.sinks, 4);
  EXPECT_EQ(streaming.window, 96);

  EXPECT_FALSE(rule("streaming:positions=original").two_query);
  EXPECT_EQ(rule("streaming:positions=original").window, 252);
  EXPECT_TRUE(rule("streaming:every=8").two_query);  // no eviction inside a chunk: no mask
  EXPECT_EQ(rule("streaming:every=8").window, INT32_MAX);
  EXPECT_EQ(rule("h2o:positions=cache").rotation, Rotation::kOnRead);
  EXPECT_EQ(rule("h2o").rotation, Rotation::kOnWrite);
  EXPECT_EQ(rule("streaming:rerotate=fused").rotation, Rotation::kOnRead);
  EXPECT_EQ(rule("streaming:every=8,positions=original").rotation, Rotation::kOnWrite);
  EXPECT_EQ(rule("streaming:rerotate=recompute").rotation, Rotation::kMaterialized);
  EXPECT_TRUE(rule("streaming:rerotate=fused").two_query);  // with a mask the sinks need a second query
  EXPECT_EQ(rule("streaming:rerotate=fused,every=8").window, INT32_MAX);
  EXPECT_FALSE(rule("streaming:rerotate=fused,every=8").two_query);
  EXPECT_TRUE(rule("compact-shift").rotated_at_rank);
  EXPECT_EQ(rule("compact-shift").window, INT32_MAX);
  EXPECT_EQ(rule("streaming", PositionKind::kNone).rotation, Rotation::kNever);
  EXPECT_EQ(rule("streaming", PositionKind::kNone).window, 252);

  const AttentionRule alibi = rule("streaming", PositionKind::kAlibi);
  EXPECT_EQ(alibi.rotation, Rotation::kNever);
  EXPECT_TRUE(alibi.rank_distance);
  EXPECT_TRUE(alibi.two_query);
  EXPECT_EQ(alibi.window, 252);
  EXPECT_TRUE(rule("h2o:positions=cache", PositionKind::kAlibi).rank_distance);
  EXPECT_FALSE(rule("h2o:positions=cache", PositionKind::kAlibi).two_query);
  EXPECT_FALSE(rule("h2o:positions=original", PositionKind::kAlibi).rank_distance);

  EXPECT_EQ(rule("streaming:positions=original", PositionKind::kLearned).window, 252);
}

TEST(AttentionRule, LearnedPositionsAreNotRenumbered) {
  const PlanTarget target{.shape = {.geometry = HeadGeometry::uniform(1, 1, 32, 32)},
                          .positions = PositionKind::kLearned};
  for (const char* method : {"streaming", "h2o:positions=cache"})
    EXPECT_THROW(MethodPlan(parse_method(method), target), Error) << method;
  for (const char* method : {"streaming:positions=original", "full", "window-recompute"})
    EXPECT_NO_THROW(MethodPlan(parse_method(method), target)) << method;
}

}  // namespace
}  // namespace palimpsest::testing
