#include "palimpsest/engine/scheduler/wait_estimate.h"

#include <gtest/gtest.h>

#include <vector>

namespace palimpsest::testing {
namespace {

using Requests = std::vector<TokensLeft>;

// A machine that reads a token in 1 ms and writes one of `sequences` in 10 ms / sequences + 5 ms.
void run_steps(WaitEstimate& estimate, int sequences) {
  for (int i = 0; i < 300; ++i) estimate.stepped(0, sequences, sequences, 0.010 + 0.005 * sequences);
  for (int i = 0; i < 300; ++i) estimate.stepped(64, sequences, sequences, 0.064 + 0.010 + 0.005 * sequences);
}

TEST(WaitEstimate, IsTheWorkBeforeTheLastRequestAtTheMeasuredSpeeds) {
  WaitEstimate estimate(std::size_t{100} << 20);
  run_steps(estimate, 1);
  for (int i = 0; i < 300; ++i) estimate.ended(100, false);  // no text ends before it has all its tokens
  EXPECT_EQ(estimate.seconds_until_begun(Requests{{0, 100}}, {}), 0);
  // The running request writes 50 tokens (0.75 s); then one reads 1000 (1 s) and writes 100 (1.5 s); then the last
  // begins.
  EXPECT_NEAR(estimate.seconds_until_begun(Requests{{0, 50}}, Requests{{1000, 100}, {7, 7}}), 3.25, 0.2);
}

TEST(WaitEstimate, RunningRequestsShareTheMachine) {
  WaitEstimate estimate(std::size_t{100} << 20);
  run_steps(estimate, 2);
  for (int i = 0; i < 300; ++i) estimate.ended(100, false);
  // Two run, 20 ms for a token of each. One ends after 50 steps; the one that waits begins then.
  EXPECT_NEAR(estimate.seconds_until_begun(Requests{{0, 50}, {0, 400}}, Requests{{0, 100}}), 1, 0.05);
  // The next begins when that one ends, 100 steps later.
  EXPECT_NEAR(estimate.seconds_until_begun(Requests{{0, 50}, {0, 400}}, Requests{{0, 100}, {0, 9}}), 3, 0.15);
}

TEST(WaitEstimate, TextsThatEndThemselvesAreShorterThanTheyMayBe) {
  WaitEstimate estimate(std::size_t{100} << 20);
  run_steps(estimate, 1);
  for (int i = 0; i < 300; ++i) estimate.ended(40, true);
  EXPECT_NEAR(estimate.seconds_until_begun(Requests{{0, 1'000'000'000'000}}, Requests{{0, 1}}), 40 * 0.015, 0.1);
}

TEST(WaitEstimate, WithoutMeasurementsAStepTakesTheTimeToReadTheWeights) {
  const WaitEstimate estimate(std::size_t{1'000'000'000});  // 0.1 s a token
  const double seconds = estimate.seconds_until_begun(Requests{{0, 10}}, Requests{{0, 1}});
  EXPECT_GT(seconds, 0.8);
  EXPECT_LT(seconds, 1.2);
}

TEST(WaitEstimate, FollowsAChangeOfSpeed) {
  WaitEstimate estimate(std::size_t{100} << 20);
  for (int i = 0; i < 3000; ++i) estimate.stepped(0, 1, 1, 0.01);
  for (int i = 0; i < 1000; ++i) estimate.stepped(0, 1, 1, 0.03);
  for (int i = 0; i < 300; ++i) estimate.ended(100, false);
  EXPECT_NEAR(estimate.seconds_until_begun(Requests{{0, 100}}, Requests{{0, 1}}), 3, 0.2);
}

}  // namespace
}  // namespace palimpsest::testing
