// Shares of heads, against plain loops over the weights of each query.
#include "palimpsest/eval/head_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "palimpsest/eval/read_weights.h"
#include "tests/eval/six_heads.h"
#include "tests/support/error_of.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

TEST(HeadProfile, SharesAreThoseOfTheBestTokens) {
  Decoder decoder = six_heads();
  const std::vector<TokenId> text = random_tokens(120, 4);
  constexpr int kSinks = 3, kRecent = 7, kKept = 10;  // 60 - 3 - 7 = 50 tokens of each head, 20% of them
  const auto shares = head_profile(decoder, text, {.sinks = kSinks, .recent = kRecent, .keep = 0.2});

  struct Token {
    double future;
    int head;
  };
  std::vector<Token> all;
  for (int h = 0; h < kSixHeads; ++h)
    for (int i = 0; i < 50; ++i) all.push_back({0, h});
  read_weights(decoder, text, 60, WeightReduction::kMeanOverGroup, [&](const HeadWeights& of) {
    for (std::size_t slot = 0; slot < of.position.size(); ++slot)
      if (of.position[slot] >= kSinks && of.position[slot] < 60 - kRecent)
        all[static_cast<std::size_t>(of.head * 50 + of.position[slot] - kSinks)].future += double{of.weight[slot]};
  });
  std::ranges::stable_sort(all, std::greater(), &Token::future);
  ASSERT_EQ(shares.size(), std::size_t{kSixHeads});
  for (int h = 0; h < kSixHeads; ++h) {
    const auto best =
        std::count_if(all.begin(), all.begin() + kKept * kSixHeads, [&](const Token& t) { return t.head == h; });
    const double share = 0.2 + 0.8 * static_cast<double>(best) / kKept;
    EXPECT_LT(std::abs(shares[static_cast<std::size_t>(h)] - share), 0.99 / kKept) << "head " << h;  // whole tokens
  }
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), kSixHeads, 1e-9);
  // Far apart: even shares, or those of other heads, would be found out.
  EXPECT_GT(std::ranges::max(shares) - std::ranges::min(shares), 0.4);
  EXPECT_NE(error_of([&] { head_profile(decoder, text, {.sinks = 50, .recent = 10}); }).find("give a longer one"),
            std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
