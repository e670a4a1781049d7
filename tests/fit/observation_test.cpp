// What is observed in chunks, against the weights of each query by itself.
#include "palimpsest/fit/observation.h"

#include <gtest/gtest.h>

#include "palimpsest/eval/read_weights.h"
#include "tests/eval/six_heads.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

constexpr int kTokens = 300;  // times at 128 (of 225)

TEST(Observation, SumsAreThoseOfEachQuery) {
  Decoder decoder = six_heads();
  const std::vector<TokenId> text = random_tokens(kTokens, 4), instruction = random_tokens(5, 9);
  QuerySums queries(decoder.model());
  const Observation of = observe(decoder, text, instruction, queries);
  ASSERT_EQ(of.heads, kSixHeads);
  ASSERT_EQ(of.times.size(), 1u);
  ASSERT_EQ(of.times[0].tokens, 128);

  std::vector<double> end(kSixHeads * kTokens), sum(end), before(end);
  read_weights(decoder, text, 0, WeightReduction::kMeanOverGroup, [&](const HeadWeights& head) {
    for (std::size_t slot = 0; slot < head.position.size(); ++slot) {
      if (head.position[slot] == kNoPosition) continue;
      const std::size_t to = of.row(head.head, static_cast<int>(head.position[slot]));
      const double weight = double{head.weight[slot]};
      end[to] += weight;
      if (head.next <= 128) sum[to] += weight;
      if (head.next <= 80) before[to] += weight;
    }
  });
  for (int head = 0; head < kSixHeads; ++head)
    for (int token = 0; token < kTokens; ++token) {
      const std::size_t i = of.row(head, token);
      ASSERT_NEAR(of.end[i], end[i], 1e-3) << head << " " << token;
      if (token >= 128) continue;
      const auto of_time = static_cast<std::size_t>(head * 128 + token);
      ASSERT_NEAR(of.times[0].sum[of_time], sum[i], 1e-3);
      ASSERT_NEAR(of.times[0].before[of_time], before[i], 1e-3);
    }
}

// The text is short enough for one part: the text, the instruction, the text again, read token by token.
TEST(Observation, RepetitionIsTheMaxOfItsQueries) {
  Decoder decoder = six_heads();
  const std::vector<TokenId> text = random_tokens(kTokens, 4), instruction = random_tokens(5, 9);
  QuerySums queries(decoder.model());
  const Observation of = observe(decoder, text, instruction, queries);
  std::vector<TokenId> twice(text);
  twice.insert(twice.end(), instruction.begin(), instruction.end());
  twice.insert(twice.end(), text.begin(), text.end());
  std::vector<float> max(kSixHeads * kTokens);
  read_weights(decoder, twice, kTokens, WeightReduction::kMaxOverGroup, [&](const HeadWeights& head) {
    for (std::size_t slot = 0; slot < head.position.size(); ++slot)
      if (head.position[slot] != kNoPosition && head.position[slot] < kTokens) {
        float& to = max[of.row(head.head, static_cast<int>(head.position[slot]))];
        to = std::max(to, head.weight[slot]);
      }
  });
  for (std::size_t i = 0; i < max.size(); ++i) ASSERT_NEAR(of.repeated[i], max[i], 1e-4) << i;
}

TEST(Observation, QueriesAreThoseOfMeanQueries) {
  Decoder decoder = six_heads();
  const std::vector<TokenId> text = random_tokens(kTokens, 4);
  QuerySums queries(decoder.model());
  observe(decoder, text, {}, queries);
  const auto means = queries.means(kTokens), golden = query_centres(decoder, text);
  ASSERT_EQ(means.size(), golden.size());
  for (std::size_t i = 0; i < means.size(); ++i) ASSERT_NEAR(means[i], golden[i], 1e-4) << i;
}

TEST(Observation, StopsWhenTold) {
  Decoder decoder = six_heads();
  QuerySums queries(decoder.model());
  long long last = 0;
  observe(decoder, random_tokens(kTokens, 4), {}, queries, [&](long long done, long long total) {
    EXPECT_EQ(total, 2 * kTokens);
    return (last = done) < 100;
  });
  EXPECT_GE(last, 100);
  EXPECT_LT(last, kTokens);
}

}  // namespace
}  // namespace palimpsest::testing
