// How many threads run a step: of a few tokens, as in decode, and of a batch of tokens, as of a prompt. A step of a
// model of some megabytes takes as long as starting threads: there a decode step is as fast on one thread, and faster
// beside other programs, while a batch of tokens is faster on all of them. Text does not depend on either number.
#pragma once

#include <algorithm>

#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

struct StepThreads {
  static constexpr int kBatchTokens =
      8;  // a step of so many tokens is a batch: fewer gain nothing on the default model

  StepThreads(int all) : decode(all), batch(all) {}
  StepThreads(int few, int many) : decode(few), batch(many) {}

  int decode, batch;
  bool fewer = false;  // may be fewer beside other programs (graph/thread_choice.h)

  int of(int tokens) const { return tokens < kBatchTokens ? decode : batch; }
  int max() const { return std::max(decode, batch); }
};

// One thread per usable CPU (core/cpu_count.h), fewer beside other programs; for decode, one in all if the weights are
// read in about half a millisecond.
StepThreads default_threads(const Hyperparameters& hyper);

}  // namespace palimpsest
