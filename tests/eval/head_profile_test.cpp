// Shares of heads, against plain loops over the weights of each query.
#include "palimpsest/eval/head_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "palimpsest/eval/read_weights.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

TEST(HeadProfile, SharesAreThoseOfTheBestTokens) {
  Decoder decoder(Model::from(make_synthetic({.vocabulary = 96,
                                              .width = 64,
                                              .layers = 3,
                                              .feed_forward = 96,
                                              .query_heads = 8,
                                              .kv_heads = 2,
                                              .head_dim = 16})),
                  1);
  std::mt19937 random(4);
  std::vector<TokenId> text(120);
  for (TokenId& each : text) each = static_cast<TokenId>(random() % 96);
  constexpr int kHeads = 6, kSinks = 3, kRecent = 7, kKept = 10;  // 60 - 3 - 7 = 50 tokens of each head, 20% of them
  const auto shares = head_profile(decoder, text, {.sinks = kSinks, .recent = kRecent, .keep = 0.2});

  struct Token {
    double future;
    int head;
  };
  std::vector<Token> all;
  for (int h = 0; h < kHeads; ++h)
    for (int i = 0; i < 50; ++i) all.push_back({0, h});
  read_weights(decoder, text, 60, WeightReduction::kMeanOverGroup, [&](const HeadWeights& of) {
    for (std::size_t slot = 0; slot < of.position.size(); ++slot)
      if (of.position[slot] >= kSinks && of.position[slot] < 60 - kRecent)
        all[static_cast<std::size_t>(of.head * 50 + of.position[slot] - kSinks)].future += double{of.weight[slot]};
  });
  std::ranges::stable_sort(all, std::greater(), &Token::future);
  ASSERT_EQ(shares.size(), std::size_t{kHeads});
  for (int h = 0; h < kHeads; ++h) {
    const auto best =
        std::count_if(all.begin(), all.begin() + kKept * kHeads, [&](const Token& t) { return t.head == h; });
    const double share = 0.2 + 0.8 * static_cast<double>(best) / kKept;
    EXPECT_NEAR(shares[static_cast<std::size_t>(h)], share, 1.5 / kKept) << "head " << h;  // whole tokens
  }
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), kHeads, 1e-9);
  EXPECT_NE(std::ranges::minmax(shares).min, std::ranges::minmax(shares).max);
  EXPECT_NE(error_of([&] { head_profile(decoder, text, {.sinks = 50, .recent = 10}); }).find("give a longer one"),
            std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
