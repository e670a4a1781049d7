// Shares of heads, against plain loops over the weights of each query.
#include "palimpsest/eval/head_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "palimpsest/eval/read_weights.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/eval/six_heads.h"
#include "tests/support/error_of.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

TEST(HeadProfile, SharesAreThoseOfTheTokensThatTheRepetitionLooksAt) {
  Decoder decoder = six_heads();
  constexpr int kTokens = 54, kSinks = 4, kKept = 10;  // 20% of 50 tokens of each head
  const std::vector<TokenId> text = random_tokens(kTokens, 4), instruction = random_tokens(3, 9);
  const auto shares = head_profile(decoder, text, instruction, 0.2);

  struct Token {
    float weight;
    int head;
  };
  std::vector<Token> all;
  for (int h = 0; h < kSixHeads; ++h)
    for (int i = kSinks; i < kTokens; ++i) all.push_back({0, h});
  std::vector<TokenId> twice(text);
  twice.insert(twice.end(), instruction.begin(), instruction.end());
  twice.insert(twice.end(), text.begin(), text.end());
  read_weights(decoder, twice, kTokens, WeightReduction::kMaxOverGroup, [&](const HeadWeights& of) {
    for (std::size_t slot = 0; slot < of.position.size(); ++slot) {
      if (of.position[slot] < kSinks || of.position[slot] >= kTokens) continue;
      float& to = all[static_cast<std::size_t>(of.head * (kTokens - kSinks) + of.position[slot] - kSinks)].weight;
      to = std::max(to, of.weight[slot]);
    }
  });
  std::ranges::stable_sort(all, std::greater(), &Token::weight);
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
}

// Layers without KV heads, with windows, or with heads of several widths.
TEST(HeadProfile, OfModelsOfAllKinds) {
  for (const std::string name : {"tiny-lfm2", "tiny-granitehybrid", "tiny-falcon-h1", "tiny-qwen35", "tiny-nemotron_h",
                                 "tiny-gemma2", "tiny-gemma4-moe", "tiny-deepseek2", "tiny-bloom"}) {
    SyntheticShape shape = parse_synthetic(name);
    shape.vocabulary = 96;
    Decoder decoder(Model::from(make_synthetic(shape)), 1);
    const auto shares = head_profile(decoder, random_tokens(200, 4), random_tokens(3, 9), 0.125);
    ASSERT_EQ(shares.size(), static_cast<std::size_t>(decoder.model().hyper().geometry.heads())) << name;
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size()), 1, 1e-9)
        << name;
    EXPECT_GT(std::ranges::min(shares), 0) << name;
  }
}

// A recurrent state cannot forget the part of a repetition before the next one.
TEST(HeadProfile, OfALongTextNeedsLayersThatForget) {
  for (const std::string name : {"tiny-lfm2", "tiny-gemma2"}) {
    SyntheticShape shape = parse_synthetic(name);
    shape.vocabulary = 96;
    shape.context = 4096;
    Decoder decoder(Model::from(make_synthetic(shape)), 1);
    const auto of = [&] { head_profile(decoder, random_tokens(600, 4), random_tokens(3, 9), 0.125); };
    if (name == "tiny-gemma2")
      EXPECT_NO_THROW(of());
    else
      EXPECT_NE(error_of(of).find("give a text of at most 509 tokens"), std::string::npos);
  }
}

TEST(HeadProfile, OfATextThatIsTooShortOrTooLong) {
  Decoder decoder = six_heads();
  const auto of = [&](int tokens) {
    return error_of([&] { head_profile(decoder, random_tokens(tokens, 4), {}, 0.2); });
  };
  EXPECT_NE(of(8).find("give one of at least 9"), std::string::npos) << of(8);
  EXPECT_NO_THROW(head_profile(decoder, random_tokens(9, 4), {}, 0.2));
  EXPECT_NE(of(100000).find("exceed the trained context"), std::string::npos) << of(100000);
}

}  // namespace
}  // namespace palimpsest::testing
