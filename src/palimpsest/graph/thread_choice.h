// The number of threads of each step: those that were asked for, or fewer while other programs use the cores. Threads
// wait for each other after every operator, so a step with more threads than free cores takes many times as long as
// with one thread. Text does not depend on the number.
#pragma once

#include "palimpsest/graph/step_threads.h"

namespace palimpsest {

class ThreadChoice {
 public:
  // `cores`: of the machine, whose programs begin() counts: a container may use fewer.
  ThreadChoice(StepThreads threads, int cores);

  // Whether begin() depends on `running` for such a step.
  bool adapts(int tokens) const { return threads_.fewer && threads_.of(tokens) > 1; }
  // Threads of the step that begins now. `running`: how many threads of all programs run or wait for a core, this one
  // included; 0: unknown. Threads of the last step still spin, and are among them.
  int begin(int tokens, int running);
  // `preempted`: in that step, a thread of this program had to give its core to another program.
  void end(bool preempted);

 private:
  static constexpr int kFirstWait = 64, kMaxWait = 1024;  // steps

  StepThreads threads_;
  int cores_, used_ = 1;
  bool first_ = true;
  double others_ = 0, disturbed_ = 0;
  int wait_ = kFirstWait, until_ = 0;  // steps until preemptions count again: brief ones must not cost threads often
};

// Threads of all programs that run or wait for a core; 0: unknown (not Linux).
int running_threads();

}  // namespace palimpsest
