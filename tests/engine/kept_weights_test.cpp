// SessionOptions::keep_weights: the weights of a decode step, whatever the policy needs, change nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"

namespace palimpsest::testing {
namespace {

class KeptWeightsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(KeptWeightsTest, AreOfEveryTokenThatTheStepAttendedTo) {
  const auto model = Model::from(make_synthetic({.vocabulary = 96,
                                                 .width = 64,
                                                 .layers = 2,
                                                 .feed_forward = 96,
                                                 .query_heads = 4,
                                                 .kv_heads = 2,
                                                 .head_dim = 16}));
  SessionOptions options = session_options(GetParam(), 32);
  Session plain(std::make_shared<Decoder>(model, 1), options);
  options.keep_weights = true;
  Session keeps(std::make_shared<Decoder>(model, 1), options);
  const std::vector<TokenId> prompt(50, 7);
  plain.prefill(prompt);
  keeps.prefill(prompt);
  EXPECT_TRUE(keeps.sequence().kept_weights(0).weight.empty());  // not of a prompt
  for (TokenId token = 0; token < 40; ++token) {
    const auto expected = plain.decode(token), logits = keeps.decode(token);
    ASSERT_TRUE(std::ranges::equal(expected, logits)) << token;
    for (int head = 0; head < keeps.cache().geometry().heads(); ++head) {
      const KeptWeights& kept = keeps.sequence().kept_weights(head);
      ASSERT_EQ(kept.position.size(), kept.weight.size());
      double sum = 0;
      long long tokens = 0;
      for (std::size_t slot = 0; slot < kept.weight.size(); ++slot) {
        if (kept.position[slot] == kNoPosition) continue;
        sum += kept.weight[slot];
        ++tokens;
      }
      EXPECT_NEAR(sum, 1, 1e-3) << token << ", head " << head;
      EXPECT_EQ(std::ranges::max(kept.position), keeps.position() - 1);
      EXPECT_GE(tokens, options.method.evicts() ? std::min(24, options.method.budget) : 50 + token + 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, KeptWeightsTest,
                         ::testing::Values("full", "streaming:budget=24", "h2o:budget=24", "tova:budget=24",
                                           "knorm:budget=24", "streaming:budget=24,mechanism=shift"));

}  // namespace
}  // namespace palimpsest::testing
