// A cache after a history of inserts and evictions, without a model.
#include "palimpsest/speed/history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "palimpsest/core/error.h"
#include "palimpsest/core/thread_pool.h"
#include "palimpsest/model/model.h"
#include "palimpsest/speed/fill.h"
#include "palimpsest/speed/speed.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

constexpr int kPage = 16, kBudget = 64;

class History : public ::testing::Test {
 protected:
  Sequence sequence(const std::string& method) const {
    SessionOptions options;
    options.method = parse_method(method);
    options.page_size = kPage;
    options.chunk = 32;
    return {*decoder_, options, std::make_shared<ThreadPool>(1)};
  }
  std::shared_ptr<Decoder> decoder_ = std::make_shared<Decoder>(Model::synthetic("tiny"), 1);
};

const std::string kKnorm = "knorm:budget=64,sinks=0,recent=0,schedule=prompt+step,mechanism=append";

// With independent scores, the kept `budget` of `tokens` are a uniform sample: a page is empty with the probability
// that all its tokens are evicted.
TEST_F(History, TokensDieWhereIndependentScoresLetThem) {
  Sequence s = sequence(kKnorm);
  const int tokens = 1600;
  simulate_generation(s, 0, tokens, 1);
  EXPECT_EQ(s.cache().occupied(), kBudget);
  EXPECT_EQ(s.cache().next(), tokens);
  const double lives = static_cast<double>(kBudget) / tokens;
  const double held = tokens * (1 - std::pow(1 - lives, kPage));
  EXPECT_NEAR(s.cache().slots_per_token(), held / kBudget, 0.06 * held / kBudget);
  EXPECT_EQ(s.cache().evicted(), tokens - kBudget);
}

TEST_F(History, AMethodOfPagesHoldsNoDeadSlots) {
  Sequence s = sequence("paged-eviction:budget=64");
  simulate_generation(s, 100, 1000, 1);
  EXPECT_LE(s.cache().occupied(), kBudget);
  EXPECT_GT(s.cache().occupied(), kBudget - kPage);
  EXPECT_LE(s.cache().slots_per_token() * s.cache().occupied(), kBudget + 2 * kPage);
}

// At the end of a prompt the cache is evicted down to its budget and defragmented: few pages, for any length.
TEST_F(History, APromptClosesUp) {
  Sequence read = sequence(kKnorm), written = sequence(kKnorm);
  simulate_generation(read, 800, 800, 1);
  simulate_generation(written, 0, 800, 1);
  EXPECT_EQ(read.cache().occupied(), kBudget);
  EXPECT_LT(read.cache().slots_per_token(), 1.5);
  EXPECT_GT(written.cache().slots_per_token(), 3);
}

TEST_F(History, FullAndSinksAndWindow) {
  Sequence full = sequence("full"), window = sequence("streaming:budget=64");
  simulate_generation(full, 10, 200, 1);
  EXPECT_EQ(full.cache().occupied(), 200);
  simulate_generation(window, 10, 200, 1);
  EXPECT_EQ(window.cache().occupied(), kBudget);
  simulate_generation(window, 0, 0, 1);
  EXPECT_EQ(window.cache().occupied(), 0);
}

TEST_F(History, ACopyIsTheSame) {
  Sequence first = sequence(kKnorm), second = sequence(kKnorm);
  simulate_generation(first, 100, 700, 1);
  fill_pages_with_noise(first.cache(), 1);
  copy(first, second);
  ASSERT_EQ(second.cache().tables(), first.cache().tables());
  for (int t = 0; t < first.cache().tables(); ++t) {
    const auto a = first.cache().table(t).position(), b = second.cache().table(t).position();
    EXPECT_TRUE(std::ranges::equal(a, b));
    EXPECT_TRUE(std::ranges::equal(first.cache().table(t).score(), second.cache().table(t).score()));
  }
  EXPECT_EQ(first.cache().bytes_in_use(), second.cache().bytes_in_use());
}

TEST_F(History, RefusesWhatOnlyTheModelKnows) {
  Sequence h2o = sequence("h2o:budget=64"), keydiff = sequence("keydiff:budget=64");
  for (Sequence* s : {&h2o, &keydiff})
    EXPECT_NE(error_of([&] { simulate_generation(*s, 0, 100, 1); }).find("reading a prompt"), std::string::npos);
}

TEST_F(History, DecodesFromThere) {
  SessionOptions options;
  options.method = parse_method(kKnorm);
  options.page_size = kPage;
  Lockstep batch(decoder_, options, 3);
  const SpeedSample sample =
      measure_speed(batch, 512, {.depth = 640, .tokens = 4, .fill = Fill::kHistory, .prompt = 64});
  EXPECT_GT(sample.tokens_per_second, 0);
  EXPECT_EQ(sample.evicted, 4);
  EXPECT_GT(sample.slots_per_token, 3);
}

}  // namespace
}  // namespace palimpsest::testing
