// positions=auto: tokens are where they were read while the text fits the trained context, and are renumbered from then
// on. The oracles are sessions with positions=original and positions=cache.
#include <gtest/gtest.h>

#include "palimpsest/core/error.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_of.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

constexpr int kContext = 100, kTokens = 180;

std::shared_ptr<Decoder> short_decoder(int layers) {
  return std::make_shared<Decoder>(Model::from(make_synthetic({.vocabulary = 96,
                                                               .width = 64,
                                                               .layers = layers,
                                                               .feed_forward = 96,
                                                               .query_heads = 4,
                                                               .kv_heads = 2,
                                                               .head_dim = 32,
                                                               .context = kContext,
                                                               .seed = 1})),
                                   1);
}

Session session_of(const std::shared_ptr<Decoder>& decoder, const std::string& method, const char* positions) {
  return {decoder, session_options(method + ",positions=" + positions, 16)};
}

std::vector<float> decoded(Session& session, TokenId token) {
  const auto logits = session.decode(token);
  return {logits.begin(), logits.end()};
}

float difference(std::span<const float> a, std::span<const float> b) {
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// The first two score no stored keys, which are rotated with original positions.
constexpr const char* kAutoMethods[] = {"random:budget=40,mechanism=append", "knorm:budget=40",
                                        "keydiff:budget=40,every=4", "keydiff:budget=40,mechanism=shift,every=4",
                                        "knorm:budget=40,sinks=2,rerotate=cached-half"};

TEST(AutoPositions, AreOriginalWithinTheTrainedContext) {
  const auto decoder = short_decoder(2);
  for (const std::string method : std::span(kAutoMethods).first(2)) {
    Session mine = session_of(decoder, method, "auto"), original = session_of(decoder, method, "original");
    const auto tokens = random_tokens(kTokens, 1, 96);
    float beyond = 0;
    for (int i = 0; i < kTokens; ++i) {
      const float far = difference(decoded(mine, tokens[at(i)]), decoded(original, tokens[at(i)]));
      if (i < kContext) {
        ASSERT_LT(far, 1e-4) << method << ", token " << i;
        for (int t = 0; t < mine.cache().tables(); ++t)
          ASSERT_EQ(positions_kept(mine.cache(), t), positions_kept(original.cache(), t)) << method << ", token " << i;
      }
      beyond = std::max(beyond, i < kContext ? 0 : far);
      ASSERT_EQ(mine.cache().fault(), nullptr);
    }
    EXPECT_GT(beyond, 1e-3) << method << ": nothing was renumbered";
  }
}

// Stored keys and values of a model of one layer do not depend on positions, so nothing of the time before the change
// is left.
TEST(AutoPositions, AreRanksBeyondTheTrainedContext) {
  const auto decoder = short_decoder(1);
  for (const std::string method : kAutoMethods) {
    Session mine = session_of(decoder, method, "auto"), ranks = session_of(decoder, method, "cache");
    const auto tokens = random_tokens(kTokens, 1, 96);
    float within = 0;
    for (int i = 0; i < kTokens; ++i) {
      const auto a = decoded(mine, tokens[at(i)]), b = decoded(ranks, tokens[at(i)]);
      if (i >= kContext) {
        ASSERT_EQ(a, b) << method << ", token " << i;
      }
      if (i < kContext) within = std::max(within, difference(a, b));
    }
    EXPECT_GT(within, 1e-3) << method << ": ranks from the beginning";
  }
}

TEST(AutoPositions, AreThoseOfTheFullCacheWhileNothingIsEvicted) {
  const auto decoder = short_decoder(2);
  Session mine = session_of(decoder, "keydiff:budget=400", "auto");
  Session full(decoder, session_options("full", 16));
  for (const TokenId token : random_tokens(kTokens, 2, 96))
    ASSERT_LT(difference(decoded(mine, token), decoded(full, token)), 1e-4);
}

// A text that is cut, or edited, to less than the trained context is at original positions again.
TEST(AutoPositions, FollowTheLengthOfTheText) {
  const auto decoder = short_decoder(1);
  const auto tokens = random_tokens(kTokens, 3, 96);
  const auto text = std::span(tokens);
  Session mine = session_of(decoder, "keydiff:budget=400", "auto"),
          fresh = session_of(decoder, "keydiff:budget=400", "auto");
  mine.prefill(text.first(130));
  EXPECT_FALSE(mine.cache().table(0).rank_is_position());
  mine.edit(80, 130, {});
  EXPECT_TRUE(mine.cache().table(0).rank_is_position());
  EXPECT_EQ(mine.cache().fault(), nullptr);
  fresh.prefill(text.first(80));
  for (int i = 130; i < kTokens; ++i)
    ASSERT_LT(difference(decoded(mine, tokens[at(i)]), decoded(fresh, tokens[at(i)])), 1e-5) << i;
  EXPECT_FALSE(mine.cache().table(0).rank_is_position());
}

TEST(AutoPositions, OtherWaysToRotateAreRefused) {
  const auto decoder = short_decoder(1);
  for (const char* method :
       {"streaming:budget=40", "lazy:budget=40,every=4", "keydiff:budget=40,mechanism=shift,rerotate=delta"})
    EXPECT_NE(error_of([&] { session_of(decoder, method, "auto"); }).find("use positions=cache or original"),
              std::string::npos)
        << method;
}

TEST(AutoPositions, AreInANameOfTheMethodAndInItsText) {
  EXPECT_EQ(parse_method("h2o:positions=auto").positions, Positions::kAuto);
  EXPECT_EQ(get_option(parse_method("h2o:positions=auto"), "positions"), "auto");
}

}  // namespace
}  // namespace palimpsest::testing
