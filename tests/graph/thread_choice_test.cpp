#include "palimpsest/graph/thread_choice.h"

#include <gtest/gtest.h>

#include <map>

namespace palimpsest::testing {
namespace {

StepThreads adapting_threads(int threads) {
  StepThreads out(threads);
  out.fewer = true;
  return out;
}

using Times = std::map<int, double>;  // milliseconds of a step, by its number of threads

// How many of `steps` steps of one token had each number of threads.
std::map<int, int> count_steps(ThreadChoice& choice, int steps, const Times& times, bool preempted) {
  std::map<int, int> out;
  for (int i = 0; i < steps; ++i) {
    const int used = choice.begin(1);
    ++out[used];
    choice.end(times.at(used), preempted && used > 1);
  }
  return out;
}

const Times kAlone = {{1, 8}, {2, 4}, {4, 2}, {8, 1}};

TEST(ThreadChoice, AllThreadsWhereNothingDisturbs) {
  ThreadChoice choice(adapting_threads(8));
  EXPECT_EQ(count_steps(choice, 1000, kAlone, false)[8], 1000);
}

TEST(ThreadChoice, FewerWhereTheyAreFasterAndAllAgainAfterwards) {
  const Times crowded = {{1, 8}, {2, 6}, {4, 9}, {8, 20}};
  ThreadChoice choice(adapting_threads(8));
  EXPECT_GT(count_steps(choice, 1000, crowded, true)[2], 800);
  count_steps(choice, 3000, kAlone, false);
  EXPECT_EQ(count_steps(choice, 1000, kAlone, false)[8], 1000);
}

TEST(ThreadChoice, DisturbedStepsThatAreFastestStay) {
  ThreadChoice choice(adapting_threads(2));
  const auto counts = count_steps(choice, 4000, {{1, 8}, {2, 5}}, true);
  EXPECT_LT(counts.at(1), 80) << "trials become rare";
  EXPECT_GE(counts.at(1), 8) << "but it was tried";
}

TEST(ThreadChoice, StepsOfOtherTokensAreNotCompared) {
  ThreadChoice choice(adapting_threads(2));
  for (int i = 0; i < 400; ++i) {
    const int tokens = i % 5 == 0 ? 2 : 1;
    EXPECT_EQ(choice.begin(tokens), 2) << "no time of eight steps in a row: no trial";
    choice.end(tokens == 2 ? 9 : 1, true);
  }
}

TEST(ThreadChoice, BatchesAndGivenThreadsStay) {
  ThreadChoice given(StepThreads(2)), free(adapting_threads(2));
  EXPECT_FALSE(given.adapts(1));
  EXPECT_EQ(count_steps(given, 500, {{2, 9}}, true)[2], 500);
  ThreadChoice two(StepThreads(1, 2));
  EXPECT_EQ(two.begin(1), 1);
  EXPECT_EQ(two.begin(StepThreads::kBatchTokens), 2);
  for (int i = 0; i < 500; ++i) {
    EXPECT_FALSE(free.adapts(StepThreads::kBatchTokens));
    ASSERT_EQ(free.begin(StepThreads::kBatchTokens), 2) << "a batch has all threads, however disturbed";
  }
}

}  // namespace
}  // namespace palimpsest::testing
