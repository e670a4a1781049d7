// The number of threads of a step, on machines whose steps take told times.
#include "palimpsest/graph/thread_choice.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

namespace palimpsest::testing {
namespace {

StepThreads adapting(int threads) {
  StepThreads out(threads);
  out.fewer = true;
  return out;
}

struct Took {
  double seconds = 0;
  bool preempted = false;
};
using MachineOfSteps = std::function<Took(int step, int threads)>;

// Seconds of `steps` steps of decode; counts their threads.
double run_steps(ThreadChoice& choice, int steps, const MachineOfSteps& machine, std::map<int, int>* used = nullptr) {
  double sum = 0;
  for (int i = 0; i < steps; ++i) {
    const int threads = choice.begin(1);
    const Took step = machine(i, threads);
    choice.end(step.seconds, step.seconds, step.preempted);
    sum += step.seconds;
    if (used != nullptr) ++(*used)[threads];
  }
  return sum;
}

// One program beside us on two cores: a step on both waits for a slice of time, most times.
Took busy_machine(int step, int threads) {
  if (threads == 1) return {.seconds = 0.014, .preempted = step % 4 == 0};
  return {.seconds = step % 3 == 0 ? 0.008 : 0.04, .preempted = true};
}
Took quiet_machine(int, int threads) {
  return {.seconds = 0.014 / threads};
}

TEST(ThreadChoice, UsesAllWhereNothingTakesACore) {
  ThreadChoice choice(adapting(2), false);
  std::map<int, int> used;
  run_steps(choice, 1000, quiet_machine, &used);
  EXPECT_EQ(used, (std::map<int, int>{{2, 1000}}));
}

TEST(ThreadChoice, UsesFewerWhileTheyAreFaster) {
  ThreadChoice choice(adapting(2), false);
  run_steps(choice, 100, quiet_machine);
  run_steps(choice, 40, busy_machine);  // is noticed
  EXPECT_LT(run_steps(choice, 1000, busy_machine), 1.25 * 1000 * 0.014);
  run_steps(choice, 200, quiet_machine);
  std::map<int, int> used;
  run_steps(choice, 500, quiet_machine, &used);
  EXPECT_GT(used[2], 490);
}

// Being preempted costs little where steps are no slower for it.
TEST(ThreadChoice, StaysWithAllWhereFewerAreSlower) {
  ThreadChoice choice(adapting(2), false);
  const MachineOfSteps disturbed = [](int, int threads) { return Took{.seconds = 0.014 / threads, .preempted = true}; };
  EXPECT_LT(run_steps(choice, 1000, disturbed), 1.05 * 1000 * 0.007);
}

TEST(ThreadChoice, FindsTheBestOfSeveral) {
  ThreadChoice choice(adapting(8), true);
  const MachineOfSteps one_core_taken = [](int, int threads) {
    return Took{.seconds = threads == 8 ? 0.05 : 0.08 / threads, .preempted = threads == 8};
  };
  run_steps(choice, 100, one_core_taken);
  std::map<int, int> used;
  run_steps(choice, 400, one_core_taken, &used);
  EXPECT_GT(used[7], 360);
  EXPECT_EQ(used.count(1), 0u) << "never fewer than a quarter";

  // Then a second program takes all but two cores.
  const MachineOfSteps two_left = [](int, int threads) {
    return Took{.seconds = threads > 2 ? 0.2 : 0.08 / threads, .preempted = threads > 2};
  };
  run_steps(choice, 300, two_left);
  EXPECT_LT(run_steps(choice, 400, two_left), 400 * 0.05);
}

TEST(ThreadChoice, GivenThreadsStay) {
  ThreadChoice choice(StepThreads(2), true);
  std::map<int, int> used;
  run_steps(choice, 200, busy_machine, &used);
  EXPECT_EQ(used, (std::map<int, int>{{2, 200}}));
}

// Steps with drafts take longer: their times are not compared with those of one token.
TEST(ThreadChoice, ComparesStepsOfOneLength) {
  ThreadChoice choice(adapting(2), false);
  for (int i = 0; i < 300; ++i) {
    const int tokens = i % 2 == 0 ? 1 : 5;
    ASSERT_EQ(choice.begin(tokens), 2);
    choice.end(0.007 * tokens, 0.007 * tokens, false);
  }
}

}  // namespace
}  // namespace palimpsest::testing
