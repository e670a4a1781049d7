#include "palimpsest/graph/thread_choice.h"

#include <algorithm>

namespace palimpsest {
namespace {

constexpr double kWholeCore = 0.75;  // of the time of a step: a thread that spins at barriers has nearly all of it
constexpr double kNew = 0.25;        // weight of a step in means
constexpr double kOften = 1.5;       // disturbed steps, of about 1 / kNew recent ones
constexpr double kFaster = 0.95;     // so much less time is worth a change

}  // namespace

ThreadChoice::ThreadChoice(StepThreads threads, bool crowded)
    : threads_(threads), now_(threads.decode), batches_with_few_(crowded ? kBatchesWithFew : 0) {
  const int all = threads.decode;
  for (const int number : {all, all - 1, all / 2, all / 4})
    if (number >= 1 && (threads.fewer || number == all) && std::ranges::find(numbers_, number) == numbers_.end())
      numbers_.push_back(number);
  for (Few& each : few_) {
    each.seconds.resize(numbers_.size());
    if (crowded) each.steps = kFirstWait, each.disturbed = 2 * kOften;
  }
}

int ThreadChoice::begin(int tokens) {
  tokens_ = tokens;
  if (tokens >= StepThreads::kBatchTokens) {
    now_ = threads_.batch;
    if (now_ > threads_.decode && batches_with_few_ > 0) {
      --batches_with_few_;
      now_ = threads_.decode;
    }
    return now_;
  }
  Few& of = few_[static_cast<std::size_t>(std::max(0, tokens))];
  const bool fewer = of.used != 0;  // another program may have ended
  if (numbers_.size() > 1 && of.tried == of.used && of.steps >= of.wait && of.seconds[of.used] > 0 &&
      (fewer || of.disturbed > kOften)) {
    of.tried = fewer ? 0 : of.used + 1;
    of.trial = 0;
    of.trial_steps = 0;
  }
  return now_ = numbers_[of.tried];
}

void ThreadChoice::end(double wall, double cpu, bool preempted) {
  if (tokens_ < StepThreads::kBatchTokens)
    end_few(few_[static_cast<std::size_t>(std::max(0, tokens_))], wall, preempted);
  else if (now_ > threads_.decode && cpu < kWholeCore * wall)
    batches_with_few_ = kBatchesWithFew;
}

void ThreadChoice::end_few(Few& of, double wall, bool preempted) {
  of.disturbed = (1 - kNew) * of.disturbed + (preempted ? 1 : 0);
  if (of.tried == of.used) {
    double& mean = of.seconds[of.used];
    mean = mean == 0 ? wall : (1 - kNew) * mean + kNew * wall;
    ++of.steps;
    return;
  }
  of.trial += wall;
  if (++of.trial_steps < kTrialSteps) return;
  of.steps = 0;
  of.seconds[of.tried] = of.trial / of.trial_steps;
  if (of.seconds[of.tried] < kFaster * of.seconds[of.used]) {
    of.used = of.tried;
    of.wait = kFirstWait;
    return;
  }
  // All threads are tried first, then ever fewer than now; after the fewest, a pause.
  const std::size_t next = of.tried < of.used ? of.used + 1 : of.tried + 1;
  if (next < numbers_.size() && of.disturbed > kOften) {
    of.tried = next;
    of.trial = 0;
    of.trial_steps = 0;
    return;
  }
  of.tried = of.used;
  of.wait = std::min(2 * of.wait, kMaxWait);
}

}  // namespace palimpsest
