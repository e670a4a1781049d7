// The number of threads of each decode step: those that were asked for, or fewer, if beside other programs a step takes
// less time with fewer. It is measured: where steps are disturbed, some are tried with half the threads; later some
// with twice as many. Text does not depend on the number. Steps of a batch have all threads: their loops are long, so a
// thread that has lost its core costs them little.
#pragma once

#include "palimpsest/graph/step_threads.h"

namespace palimpsest {

class ThreadChoice {
 public:
  explicit ThreadChoice(StepThreads threads) : threads_(threads), used_(threads.decode) {}

  // Whether end() is needed after such a step.
  bool adapts(int tokens) const { return threads_.fewer && threads_.decode > 1 && tokens < StepThreads::kBatchTokens; }
  // Threads of the step that begins now.
  int begin(int tokens);
  // `milliseconds`: that the step took. `preempted`: in it, a thread of this program lost its core to another program.
  void end(double milliseconds, bool preempted);

 private:
  static constexpr int kTried = 8;                         // steps of a trial
  static constexpr int kFirstWait = 64, kLastWait = 1024;  // steps from a trial to the next

  void use(int threads);

  StepThreads threads_;
  int used_, tokens_ = 0;
  int steps_ = 0;                      // with this number of threads and tokens
  double usual_ = 0;                   // milliseconds of such a step
  double disturbed_ = 0;               // the share of recent steps in which a thread was preempted
  int before_ = 0;                     // in a trial: the number of threads before it; else 0
  double usual_before_ = 0;            // ... and the milliseconds
  int wait_ = kFirstWait, until_ = 0;  // steps until the next trial may begin
};

}  // namespace palimpsest
