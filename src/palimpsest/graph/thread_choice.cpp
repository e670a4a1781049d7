#include "palimpsest/graph/thread_choice.h"

#include <algorithm>

namespace palimpsest {
namespace {

constexpr double kNewStep = 0.125;  // weight of a step in means
constexpr double kOften = 0.3;      // of recent steps were disturbed
constexpr double kBetter = 0.97;    // of the milliseconds

}  // namespace

void ThreadChoice::use(int threads) {
  used_ = threads;
  steps_ = 0;
}

int ThreadChoice::begin(int tokens) {
  if (!adapts(tokens)) return threads_.of(tokens);
  if (tokens != tokens_) {  // other work: its time says nothing about the time until now
    if (before_ > 0) use(before_);
    before_ = 0;
    steps_ = 0;
    tokens_ = tokens;
  }
  return used_;
}

void ThreadChoice::end(double milliseconds, bool preempted) {
  usual_ = steps_ == 0 ? milliseconds : usual_ + std::max(kNewStep, 1.0 / (steps_ + 1)) * (milliseconds - usual_);
  disturbed_ += kNewStep * ((preempted ? 1 : 0) - disturbed_);
  ++steps_;
  until_ = std::max(0, until_ - 1);
  if (steps_ < kTried) return;
  if (before_ > 0) {
    const bool better = usual_ < kBetter * usual_before_;
    wait_ = better ? kFirstWait : std::min(2 * wait_, kLastWait);
    until_ = wait_;
    if (!better) use(before_);
    before_ = 0;
  } else if (until_ == 0) {
    const int all = threads_.decode, tried = disturbed_ > kOften && used_ > 1 ? used_ / 2 : std::min(all, 2 * used_);
    if (tried == used_) return;
    before_ = used_;
    usual_before_ = usual_;
    use(tried);
  }
}

}  // namespace palimpsest
