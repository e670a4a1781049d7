// Shares of far attention, against the weights of each query as the last of a chunk of all tokens before it.
#include "palimpsest/eval/far_attention.h"

#include <gtest/gtest.h>

#include "tests/eval/six_heads.h"
#include "tests/support/error_of.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

struct LastQuery final : AttentionReceiver {  // the weights of a chunk's last query
  LastQuery(const Cache& c, int s, int r) : cache(c), sinks(s), recent(r) {}
  void receive(const StepSignal& signal) override {
    const int head = signal.head;
    const int kv_head = cache.geometry().kv_head_of(head);
    const auto position = cache.table(0).position();
    float max = 0;
    for (std::size_t s = 0; s < position.size(); ++s)
      if (position[s] >= sinks && position[s] < cache.next() - recent) max = std::max(max, weights[kv_head][s]);
    far[static_cast<std::size_t>(head)] += double{max};
  }
  const Cache& cache;
  Position sinks, recent;
  std::vector<float> weights[2];
  std::vector<double> far = std::vector<double>(6, 0);
};

TEST(FarAttention, IsWhatSinksAndAWindowDoNotHold) {
  Decoder decoder = six_heads();
  const std::vector<TokenId> text = random_tokens(60, 4);
  constexpr int kSinks = 3, kRecent = 10;
  const auto shares = far_attention(decoder, text, kSinks, kRecent);
  std::vector<double> golden(6, 0);
  for (int end = kSinks + kRecent + 1; end <= 60; ++end) {
    CacheOptions options = decoder.cache_options();
    Cache cache(options);
    cache.insert(end);
    LastQuery last(cache, kSinks, kRecent);
    for (auto& row : last.weights) row.resize(cache.table(0).score().size());
    float* rows[6];
    for (int i = 0; i < 6; ++i) rows[i] = last.weights[i % 2].data();
    const SequenceStep step{.cache = &cache,
                            .tokens = std::span<const TokenId>(text).first(static_cast<std::size_t>(end)),
                            .weights = rows,
                            .request = {.weights_queries = 1, .weight_reduction = WeightReduction::kMaxOverGroup},
                            .receiver = &last};
    decoder.step({&step, 1});
    for (std::size_t i = 0; i < 6; ++i) golden[i] += last.far[i] / (60 - kSinks - kRecent);
  }
  ASSERT_EQ(shares.size(), golden.size());
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(shares[i], golden[i], 2e-3);  // f16 keys, different order of sums
    EXPECT_GT(shares[i], 0.02);
  }
  EXPECT_NE(error_of([&] { far_attention(decoder, text, 50, 10); }).find("give a longer one"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
