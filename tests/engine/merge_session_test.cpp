// Limits of mechanism merge, over whole sessions: plain eviction if no tokens are similar, constant memory if many are.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/support/error_of.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<Decoder> merge_decoder() {
  static const auto decoder = std::make_shared<Decoder>(Model::from(make_synthetic({.vocabulary = 96,
                                                                                    .width = 32,
                                                                                    .layers = 2,
                                                                                    .feed_forward = 32,
                                                                                    .query_heads = 4,
                                                                                    .kv_heads = 2,
                                                                                    .head_dim = 16})),
                                                        1);
  return decoder;
}

Session session_of(const std::string& method) {
  return Session(merge_decoder(), {.method = parse_method(method), .cache_type = CacheType::kF32, .page_size = 16});
}

// If all victims are dropped (the zero cluster), the result is that of plain eviction, bit by bit.
TEST(Merge, WithNothingAlikeIsPlainEviction) {
  for (const char* none : {"tau=1", "gamma=1", "tau=0.99999"}) {
    Session plain = session_of("global-local:budget=40,recent=8");
    Session zero = session_of(std::string("ems:budget=40,recent=8,") + none);
    // All tokens differ: equal ones would be merged at tau=0.99999.
    std::vector<TokenId> tokens;
    for (int i = 0; i < 90; ++i) tokens.push_back(i);
    const auto a = plain.prefill(tokens);
    const std::vector<float> first(a.begin(), a.end());
    const auto b = zero.prefill(tokens);
    EXPECT_TRUE(std::ranges::equal(first, b)) << none;
    for (int i = 0; i < 100; ++i) {
      const bool alike = std::string_view(none) == "tau=0.99999";
      const auto token = static_cast<TokenId>(alike ? 90 + i % 6 : i % 96);
      if (alike && i == 6) break;
      const auto x = plain.decode(token);
      const std::vector<float> kept(x.begin(), x.end());
      ASSERT_TRUE(std::ranges::equal(kept, zero.decode(token))) << none << " " << i;
    }
    for (int t = 0; t < zero.cache().tables(); ++t) {
      EXPECT_TRUE(std::ranges::equal(plain.cache().table(t).position(), zero.cache().table(t).position()));
      for (const MergedToken& token : zero.cache().merged(t)->tokens())
        EXPECT_EQ(token.slot, MergedToken::kZeroClass) << none;
    }
  }
}

#ifdef PALIMPSEST_SANITIZED
constexpr int kSteps = 1000;
#else
constexpr int kSteps = 10'000;
#endif

TEST(Merge, CountsAreConstant) {
  constexpr int kBudget = 32, kGamma = 4;
  Session session = session_of("ems:budget=32,recent=8,tau=0.1");
  session.prefill(random_tokens(300, 5));
  const Cache& cache = session.cache();
  std::size_t bytes = 0;
  int full = 0;
  for (int step = 0; step < kSteps; ++step) {
    session.decode(static_cast<TokenId>((step * 31 + step / 7) % 96));
    for (int t = 0; t < cache.tables(); ++t) {
      ASSERT_EQ(cache.table(t).occupied(), kBudget);
      const auto merged = cache.merged(t)->tokens();
      ASSERT_LE(merged.size(), static_cast<std::size_t>((kGamma - 1) * kBudget));
      full += merged.size() == static_cast<std::size_t>((kGamma - 1) * kBudget);
      for (const MergedToken& token : merged) {
        if (token.slot == MergedToken::kZeroClass) continue;
        ASSERT_NE(cache.table(t).position()[static_cast<std::size_t>(token.slot)], kNoPosition);
      }
    }
    if (step == 0) bytes = cache.bytes_in_use();
    ASSERT_EQ(cache.bytes_in_use(), bytes);
  }
  EXPECT_GT(full, kSteps / 2);  // and the maximum is reached
}

// Illegal combinations.
TEST(Merge, RefusesWhatItCannotDo) {
  const auto error = [](const std::string& method) { return error_of([&] { session_of(method); }); };
  EXPECT_NE(error("ems:policy=h2o").find("global-local"), std::string::npos);
  EXPECT_NE(error("ems:policy=keydiff").find("global-local"), std::string::npos);
  EXPECT_NE(error("ems:positions=cache,merge-position=own").find("positions=original"), std::string::npos);
  EXPECT_NE(error("ems:positions=cache,rerotate=cached-half").find("rerotate=fused"), std::string::npos);
  EXPECT_NE(error("cam:zero-class=on").find("join next"), std::string::npos);
  EXPECT_NO_THROW(session_of("ems:budget=64,mechanism=in-place"));
  EXPECT_NE(error("cam:policy=snapkv").find("oldest"), std::string::npos);
  EXPECT_NE(error("cam:merge-position=own").find("join"), std::string::npos);
  EXPECT_NE(error("full:mechanism=merge").find("policy"), std::string::npos);
  EXPECT_THROW(parse_method("ems:tau=1.5"), Error);
  EXPECT_THROW(parse_method("ems:gamma=0"), Error);
  EXPECT_NE(error("ems:gamma=16000000").find("use 1 to 4096"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
