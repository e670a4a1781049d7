// The number of threads of each step, by what steps took. Threads wait for each other after every operator: beside
// another program that uses a core, a step on all cores may take several times as long as on fewer. Text does not
// depend on the number. Where nothing takes a core from this program, all steps have the threads that were asked for.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "palimpsest/graph/step_threads.h"

namespace palimpsest {

class ThreadChoice {
 public:
  // `crowded`: more programs run than there are cores.
  ThreadChoice(StepThreads threads, bool crowded);

  int begin(int tokens);  // threads of the step that begins now
  // Of that step: its seconds, those that the calling thread had a core, and whether a thread of this program had to
  // give its core to another program.
  void end(double wall, double cpu, bool preempted);

 private:
  // Steps of one number of tokens: numbers of threads are tried where steps were disturbed, and fewer are kept as long
  // as they are faster.
  struct Few {
    std::size_t used = 0, tried = 0;   // indices of numbers_; tried != used: a trial
    std::vector<double> seconds = {};  // mean of recent steps, by number; 0: none
    double disturbed = 0;              // recent steps that were
    int steps = 0, wait = kFirstWait;  // since the last trial; until the next one
    double trial = 0;                  // seconds of its steps
    int trial_steps = 0;
  };
  static constexpr int kFirstWait = 8, kMaxWait = 64, kTrialSteps = 2;
  static constexpr int kBatchesWithFew = 16;

  void end_few(Few& of, double wall, bool preempted);

  StepThreads threads_;
  std::vector<int> numbers_;  // of threads in steps of few tokens, the first is threads_.decode
  std::array<Few, StepThreads::kBatchTokens> few_;
  int tokens_ = 0, now_ = 0;  // of the step
  int batches_with_few_;      // to come
};

}  // namespace palimpsest
