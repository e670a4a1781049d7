#include "palimpsest/engine/speculation/draft_times.h"

#include <gtest/gtest.h>

namespace palimpsest::testing {
namespace {

// A step whose drafts take `each` to make, and which takes `seconds`; returns whether it was to have none.
bool timed_step(DraftTimes& times, DraftTimes::Clock::time_point& now, int drafts, double each, double seconds) {
  const auto pass = [&](double s) {
    now += std::chrono::duration_cast<DraftTimes::Clock::duration>(std::chrono::duration<double>(s));
  };
  const bool plain = times.begin(now);
  if (plain) drafts = 0;
  pass(each * drafts);
  times.drafted(drafts, now);
  pass(seconds);
  times.read(drafts, now);
  return plain;
}

TEST(DraftTimes, ThePriceIsWhatADraftTakesInStepsWithoutDrafts) {
  DraftTimes times;
  DraftTimes::Clock::time_point now;
  EXPECT_EQ(times.price(), std::nullopt);
  EXPECT_TRUE(timed_step(times, now, 4, 0, 3)) << "the first step, which is slow";
  EXPECT_TRUE(timed_step(times, now, 4, 0, 1));
  EXPECT_FALSE(timed_step(times, now, 4, 9, 1.4)) << "the drafter reads the prompt";
  EXPECT_EQ(times.price(), std::nullopt);
  EXPECT_FALSE(timed_step(times, now, 4, 0.25, 1.4));
  ASSERT_TRUE(times.price().has_value());
  EXPECT_NEAR(*times.price(), 0.25 + 0.1, 1e-6);
  EXPECT_FALSE(timed_step(times, now, 4, 25, 100)) << "another program";
  EXPECT_NEAR(*times.price(), 1.2 * (0.25 + 0.1), 1e-6);
  int plain = 0;
  for (int i = 5; i < 1025; ++i) plain += timed_step(times, now, 2, 0.5, 2.4) ? 1 : 0;
  EXPECT_EQ(plain, 8);
  EXPECT_GT(*times.price(), 0.2);
}

TEST(DraftTimes, TriesAgainAfterLongWithoutDrafts) {
  DraftTimes times;
  DraftTimes::Clock::time_point now;
  for (int i = 0; i < 400; ++i) timed_step(times, now, 0, 0, 1);
  EXPECT_FALSE(times.due());
  for (int i = 0; i < 200; ++i) timed_step(times, now, 0, 0, 1);
  EXPECT_TRUE(times.due());
  while (timed_step(times, now, 1, 0.5, 1)) {
  }
  EXPECT_FALSE(times.due());
}

TEST(DraftTimes, AStepThatDidNotBeginCountsNothing) {
  DraftTimes times;
  times.read(0);
  EXPECT_EQ(times.price(), std::nullopt);
}

}  // namespace
}  // namespace palimpsest::testing
