// Kept tokens and logits of methods, on a small random model: schedules, baselines, budgets by head, batches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/lockstep.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<Decoder> decoder_with_rope(RopeKind rope = RopeKind::kPairs) {
  SyntheticShape options{
      .vocabulary = 96, .width = 64, .layers = 2, .feed_forward = 96, .query_heads = 4, .kv_heads = 2, .head_dim = 16};
  if (rope == RopeKind::kNone) options.rope_dims = 0;
  return std::make_shared<Decoder>(Model::from(make_synthetic(options)), 1);
}

double difference(std::span<const float> a, std::span<const float> b) {
  double square = 0, worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    square += double{a[i]} * a[i];
    worst = std::max(worst, std::abs(double{a[i]} - b[i]));
  }
  return worst / std::sqrt(square / static_cast<double>(a.size()));
}

// Logits after each token, decoded one by one.
std::vector<std::vector<float>> decode_all(Session& session, std::span<const TokenId> tokens) {
  std::vector<std::vector<float>> out;
  for (const TokenId token : tokens) {
    const auto logits = session.decode(token);
    out.emplace_back(logits.begin(), logits.end());
  }
  return out;
}

TEST(Methods, EveryWayToKeepCachePositionsIsTheSame) {
  const auto decoder = decoder_with_rope();
  const auto tokens = random_tokens(200, 1);
  for (const std::string base :
       {"streaming:budget=32,", "streaming:budget=32,every=8,", "h2o:budget=32,positions=cache,"}) {
    Session first(decoder, session_options(base + "rerotate=fused"));
    const auto expected = decode_all(first, tokens);
    for (const char* way :
         {"rerotate=auto", "rerotate=cached-half", "rerotate=recompute", "rerotate=delta,mechanism=shift",
          "rerotate=delta,mechanism=gather", "rerotate=fused,mechanism=gather"}) {
      Session session(decoder, session_options(base + way));
      const auto logits = decode_all(session, tokens);
      double worst = 0;
      for (std::size_t i = 0; i < tokens.size(); ++i) worst = std::max(worst, difference(expected[i], logits[i]));
      EXPECT_LT(worst, 3e-5) << base << way;
      for (int t = 0; t < session.cache().tables(); ++t)
        ASSERT_EQ(positions_kept(session.cache(), t), positions_kept(first.cache(), t)) << base << way;
    }
  }
}

// window-recompute: the logits of a new session that reads only the sinks and the last tokens.
TEST(Methods, WindowRecomputeIsAFreshSessionForEveryToken) {
  const auto decoder = decoder_with_rope();
  const auto tokens = random_tokens(60, 1);
  for (const std::size_t sinks : {0U, 3U}) {
    const auto options = session_options(fmt::format("window-recompute:budget=24,sinks={}", sinks));
    Session session(decoder, options), prompt(decoder, options), reader(decoder, options);
    const auto logits = decode_all(session, tokens);
    std::vector<std::vector<float>> read;
    reader.read(tokens, [&](long long, std::span<const float> l) { read.emplace_back(l.begin(), l.end()); });
    ASSERT_EQ(read.size(), tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::vector<TokenId> window;
      for (std::size_t j = 0; j <= i; ++j)
        if (j < sinks || j + 24 > i + sinks) window.push_back(tokens[j]);
      Session inserted(decoder, session_options("full"));
      const auto expected = inserted.prefill(window);
      ASSERT_LT(difference(expected, logits[i]), 1e-5) << sinks << " sinks, token " << i;
      ASSERT_LT(difference(expected, read[i]), 1e-5) << sinks << " sinks, token " << i;
    }
    EXPECT_LT(difference(logits.back(), prompt.prefill(tokens)), 1e-5) << sinks;
    EXPECT_EQ(session.cache().occupied(), 24);
  }
}

TEST(Methods, AfterThePromptOnly) {
  Session session(decoder_with_rope(), session_options("streaming:budget=20,schedule=prompt", 16));
  const auto tokens = random_tokens(70, 1);
  session.prefill(std::span(tokens).first(50), [&](long long done, long long) {
    EXPECT_EQ(session.cache().occupied(), done == 50 ? 20 : done);
    return true;
  });
  EXPECT_EQ(positions_kept(session.cache()).back(), 49);
  decode_all(session, std::span(tokens).subspan(50));
  EXPECT_EQ(session.cache().occupied(), 40);
}

TEST(Methods, AfterThePromptAndThenEveryStep) {
  Session session(decoder_with_rope(), session_options("h2o:budget=20,schedule=prompt+step", 16));
  const auto tokens = random_tokens(70, 1);
  session.prefill(std::span(tokens).first(50));
  EXPECT_EQ(session.cache().occupied(), 20);
  decode_all(session, std::span(tokens).subspan(50));
  EXPECT_EQ(session.cache().occupied(), 20);
}

// Prompts up to prompt-max are compressed once, at their end; of longer ones the ends of chunks leave prompt-max
// tokens.
TEST(Methods, HoldAtMostPromptMaxOfAPrompt) {
  const auto decoder = decoder_with_rope();
  const auto tokens = random_tokens(300, 1);
  for (const char* policy : {"knorm", "snapkv", "critical", "h2o", "keydiff"}) {
    SCOPED_TRACE(policy);
    const std::string base = std::string(policy) + ":budget=40,sinks=2,recent=4,schedule=prompt+step";
    Session whole(decoder, session_options(base, 16)), bounded(decoder, session_options(base + ",prompt-max=100", 16));
    whole.prefill(std::span(tokens).first(100));
    bounded.prefill(std::span(tokens).first(100));
    EXPECT_EQ(bounded.cache().occupied(), 40);
    for (int t = 0; t < whole.cache().tables(); ++t)
      EXPECT_TRUE(std::ranges::equal(whole.cache().table(t).position(), bounded.cache().table(t).position()));
    const auto a = decode_all(whole, std::span(tokens).subspan(100, 20)),
               b = decode_all(bounded, std::span(tokens).subspan(100, 20));
    EXPECT_EQ(a, b);

    bounded.clear();
    bounded.prefill(tokens, [&](long long done, long long total) {
      EXPECT_EQ(bounded.cache().occupied(), done == total ? 40 : std::min(done, 100LL));
      return true;
    });
    decode_all(bounded, std::span(tokens).first(20));
    EXPECT_EQ(bounded.cache().occupied(), 40);
  }
}

TEST(Methods, WhenAPageIsFull) {
  Session session(decoder_with_rope(), session_options("streaming:budget=32,schedule=page"));
  int evictions = 0, max = 0;
  for (const TokenId token : random_tokens(200, 1)) {
    const int before = session.cache().occupied();
    session.decode(token);
    max = std::max(max, session.cache().occupied());
    if (session.cache().occupied() < before) {
      ++evictions;
      EXPECT_EQ(before, 48);  // three full pages
      EXPECT_EQ(session.cache().occupied(), 33);
    }
  }
  EXPECT_EQ(max, 48);
  EXPECT_EQ(evictions, (200 - 48 + 15) / 16);
}

TEST(Methods, SlackAndMaxDrop) {
  Session headroom(decoder_with_rope(), session_options("streaming:budget=32,every=5,slack=8"));
  Session drop(decoder_with_rope(), session_options("streaming:budget=32,every=16,max-drop=6"));
  int min = 1000, min_drop = 1000, most = 0;
  for (const TokenId token : random_tokens(150, 1)) {
    headroom.decode(token);
    const int before = drop.cache().occupied();
    drop.decode(token);
    EXPECT_LE(headroom.cache().occupied(), 32 - 8 + 5 - 1);
    EXPECT_LE(drop.cache().occupied(), 32 + 15);
    EXPECT_GE(drop.cache().occupied(), before + 1 - 6);
    if (drop.cache().evicted() > 0) min_drop = std::min(min_drop, drop.cache().occupied());
    most = std::max(most, drop.cache().occupied());
    if (headroom.cache().evicted() > 0) min = std::min(min, headroom.cache().occupied());
  }
  EXPECT_EQ(min, 32 - 8);
  EXPECT_EQ(min_drop, 32);  // several evictions of 6 return to the budget
  EXPECT_EQ(most, 32 + 15);
  EXPECT_GT(drop.cache().evicted(), 90);
}

TEST(Methods, RefreshKeepsSomeOfTheVictimsUntilTheNextEviction) {
  Session session(decoder_with_rope(), session_options("streaming:budget=40,every=16,refresh=4"));
  for (const TokenId token : random_tokens(300, 1)) session.decode(token);
  const auto positions = positions_kept(session.cache());
  const Position window = session.position() - 20;
  EXPECT_EQ(std::ranges::count_if(positions, [&](Position p) { return p >= 4 && p < window - 16; }), 4);
  EXPECT_EQ(positions[3], 3);
}

TEST(Methods, EachHeadKeepsItsOwnHeavyHittersAndTheNewestHalf) {
  Session session(decoder_with_rope(), session_options("h2o:budget=24"));
  for (const TokenId token : random_tokens(200, 1)) session.decode(token);
  ASSERT_EQ(session.cache().tables(), 4);
  bool differ = false;
  for (int t = 0; t < 4; ++t) {
    const auto positions = positions_kept(session.cache(), t);
    ASSERT_EQ(positions.size(), 24u);
    EXPECT_EQ(positions[12], 188);  // the newest twelve
    differ = differ || positions != positions_kept(session.cache(), 0);
  }
  EXPECT_TRUE(differ);
}

TEST(Methods, BudgetsByLayerAndHead) {
  const std::string path = testing::own_file("heads.txt");
  std::ofstream(path) << "0 * 48\n1 1 12\n";
  for (const std::string method : {"streaming", "streaming:every=8", "h2o", "h2o:positions=cache"}) {
    const std::string separator = method.find(':') == std::string::npos ? ":" : ",";
    Session session(decoder_with_rope(), session_options(method + separator + "budget=24,split=" + path));
    Session reader(decoder_with_rope(), session_options(method + separator + "budget=24,split=" + path));
    const auto tokens = random_tokens(150, 1);
    decode_all(session, tokens);
    reader.prefill(tokens);
    const int more = method == "streaming:every=8" ? 7 : 0;
    const int budgets[] = {48, 48, 24, 12};
    for (int t = 0; t < 4; ++t) {
      EXPECT_LE(session.cache().table(t).occupied(), budgets[t] + more) << method;
      EXPECT_GE(session.cache().table(t).occupied(), budgets[t]) << method;
      EXPECT_LE(reader.cache().table(t).occupied(), budgets[t] + more) << method;
    }
  }
  // Sinks + window with a window per head: chunks give the same as token by token.
  Session single(decoder_with_rope(), session_options("streaming:budget=24,split=" + path)),
      chunks(decoder_with_rope(), single.options());
  const auto tokens = random_tokens(150, 1);
  const auto logits = decode_all(single, tokens);
  EXPECT_LT(difference(logits.back(), chunks.prefill(tokens)), 2e-5);
  EXPECT_NE(error_of([&] {
              Session(decoder_with_rope(), session_options("streaming:budget=24,split=/no/such"));
            }).find("no such file"),
            std::string::npos);
}

TEST(Methods, WithoutRotaryPositionsBothKindsAreTheSame) {
  const auto decoder = decoder_with_rope(RopeKind::kNone);
  const auto tokens = random_tokens(100, 1);
  Session original(decoder, session_options("streaming:budget=24,positions=original")),
      cache(decoder, session_options("streaming:budget=24"));
  const auto a = decode_all(original, tokens), b = decode_all(cache, tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(a[i], b[i]);
}

TEST(Lockstep, EverySequenceIsAsIfAlone) {
  const auto decoder = decoder_with_rope();
  for (const char* method : {"full", "streaming:budget=24", "streaming:budget=24,mechanism=shift", "h2o:budget=24",
                             "h2o:budget=24,positions=cache", "random:budget=48", "lazy:budget=24,every=5"}) {
    Lockstep batch(decoder, session_options(method), 3);
    std::vector<std::vector<TokenId>> tokens;
    std::vector<std::vector<std::vector<float>>> alone;
    for (unsigned i = 0; i < 3; ++i) {
      tokens.push_back(random_tokens(120, i + 1));
      const auto prompt = std::span(tokens[i]).first(30 + 11 * i);
      Session session(decoder, session_options(method));
      session.prefill(prompt);
      batch.session(static_cast<int>(i)).prefill(prompt);
      alone.push_back(decode_all(session, std::span(tokens[i]).subspan(60, 60)));
    }
    for (std::size_t step = 0; step < 60; ++step) {
      const std::vector<TokenId> next = {tokens[0][60 + step], tokens[1][60 + step], tokens[2][60 + step]};
      const auto logits = batch.decode(next);
      ASSERT_EQ(logits.size(), 3u * 96u);
      for (std::size_t i = 0; i < 3; ++i)
        ASSERT_LT(difference(alone[i][step], logits.subspan(i * 96, 96)), 2e-5) << method << ", step " << step;
    }
  }
  EXPECT_THROW(Lockstep(decoder, session_options("full"), 0), Error);
  EXPECT_THROW(Lockstep(decoder, session_options("window-recompute"), 2), Error);
}

}  // namespace
}  // namespace palimpsest::testing
