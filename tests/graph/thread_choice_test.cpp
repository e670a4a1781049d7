#include "palimpsest/graph/thread_choice.h"

#include <gtest/gtest.h>

namespace palimpsest::testing {
namespace {

StepThreads adapting_threads(int threads) {
  StepThreads out(threads);
  out.fewer = true;
  return out;
}

// Steps of one token beside `others` threads that always run; the threads of the last step.
int after_steps(ThreadChoice& choice, int steps, int others, bool preempted = false, bool spins = true) {
  int used = 1;
  for (int i = 0; i < steps; ++i) {
    used = choice.begin(1, (spins ? used : 1) + others);
    choice.end(preempted);
  }
  return used;
}

TEST(ThreadChoice, LeavesCoresToOtherPrograms) {
  ThreadChoice two(adapting_threads(2), 2), eight(adapting_threads(8), 8);
  EXPECT_EQ(two.begin(1, 1), 2) << "the first step is right at once";
  EXPECT_EQ(ThreadChoice(adapting_threads(2), 2).begin(1, 2), 1);
  EXPECT_EQ(ThreadChoice(adapting_threads(2), 2).begin(100, 9), 1) << "a prompt, too";
  EXPECT_EQ(after_steps(eight, 40, 0), 8);
  EXPECT_EQ(after_steps(eight, 40, 1), 7);
  EXPECT_EQ(after_steps(eight, 40, 5), 3);
  EXPECT_EQ(after_steps(eight, 40, 20), 2) << "never fewer than a quarter";
  EXPECT_EQ(after_steps(eight, 40, 0), 8);
}

TEST(ThreadChoice, AProgramThatRunsBrieflyCostsNothing) {
  ThreadChoice choice(adapting_threads(2), 2);
  after_steps(choice, 10, 0);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(choice.begin(1, i % 5 == 0 ? 3 : 2), 2) << i;
    choice.end(i % 5 == 0);
  }
}

// Threads that sleep between steps are not seen running: preemptions tell.
TEST(ThreadChoice, PreemptionsCountWhereThreadsDoNotSpin) {
  ThreadChoice choice(adapting_threads(2), 2);
  EXPECT_EQ(choice.begin(1, 1), 2);
  int with_all = 0;
  for (int i = 0, used = 2; i < 400; ++i) {
    choice.end(used == 2);
    used = choice.begin(1, 2);  // this thread, and one of another program
    with_all += used == 2 ? 1 : 0;
  }
  EXPECT_LT(with_all, 10);
}

TEST(ThreadChoice, GivenThreadsStay) {
  ThreadChoice given(StepThreads(2), 2), unknown(adapting_threads(2), 2);
  EXPECT_EQ(after_steps(given, 50, 9, true), 2);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(unknown.begin(1, 0), 2) << "the number of running threads is unknown";
}

TEST(ThreadChoice, ThisMachineTellsHowManyRun) {
  if (running_threads() == 0) GTEST_SKIP() << "needs /proc/loadavg";
  EXPECT_GE(running_threads(), 1);
}

}  // namespace
}  // namespace palimpsest::testing
