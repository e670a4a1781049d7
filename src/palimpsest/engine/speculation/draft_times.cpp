#include "palimpsest/engine/speculation/draft_times.h"

#include <algorithm>

namespace palimpsest {
namespace {

double seconds_between(DraftTimes::Clock::time_point from, DraftTimes::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void DraftTimes::Mean::add(double more) {
  seconds = known ? 0.8 * seconds + 0.2 * std::min(more, 2 * seconds) : more;
  known = true;
}

bool DraftTimes::begin(Clock::time_point now) {
  start_ = now;
  running_ = true;
  const long long step = steps_++;
  return step < kFirst || step % kInterval == 0;
}

// The first time that drafts are made, the drafter reads the prompt.
void DraftTimes::drafted(long long drafts, Clock::time_point now) {
  made_ = now;
  if (drafts == 0) return;
  drafted_ = steps_;
  if (times_drafted_++ > 0) draft_.add(seconds_between(start_, now) / static_cast<double>(drafts));
}

void DraftTimes::read(int drafts, Clock::time_point now) {
  if (!running_) return;
  running_ = false;
  const double seconds = seconds_between(made_, now);
  if (drafts == 0 && steps_ == kFirst)
    plain_ = {std::min(seconds, plain_.seconds), true};
  else if (drafts == 0)
    plain_.add(seconds);
  else
    more_.add(std::max(0.0, seconds - plain_.seconds) / drafts);
}

std::optional<double> DraftTimes::price() const {
  if (!plain_.known || !draft_.known || !more_.known || plain_.seconds <= 0) return std::nullopt;
  return (draft_.seconds + more_.seconds) / plain_.seconds;
}

}  // namespace palimpsest
