#include "palimpsest/graph/thread_choice.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace palimpsest {
namespace {

constexpr double kNew = 0.125;     // weight of a sample in others_
constexpr double kNewStep = 0.25;  // ... of a step in disturbed_
constexpr double kOften = 0.4;     // of recent steps were disturbed

}  // namespace

ThreadChoice::ThreadChoice(StepThreads threads, int cores) : threads_(threads), cores_(cores) {}

int ThreadChoice::begin(int tokens, int running) {
  const int asked = threads_.of(tokens);
  if (!adapts(tokens) || running <= 0) return used_ = asked;
  const double now = std::max(0, running - used_);
  others_ = first_ ? now : (1 - kNew) * others_ + kNew * now;
  first_ = false;
  if (until_ > 0) {
    --until_;
  } else if (used_ > 1 && disturbed_ > kOften) {
    others_ = std::max(others_, 1.0);  // from the next step on, it is known better
    disturbed_ = 0;
    until_ = wait_;
    wait_ = std::min(2 * wait_, kMaxWait);
  }
  const int taken = static_cast<int>(others_ + 0.5);
  return used_ = std::clamp(cores_ - taken, std::max(1, asked / 4), asked);
}

void ThreadChoice::end(bool preempted) {
  disturbed_ = (1 - kNewStep) * disturbed_ + (preempted ? kNewStep : 0);
}

int running_threads() {
  static const int file = ::open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  char text[64] = {};
  if (file < 0 || ::pread(file, text, sizeof text - 1, 0) <= 0) return 0;
  int running = 0;
  return std::sscanf(text, "%*s %*s %*s %d/", &running) == 1 ? running : 0;
}

}  // namespace palimpsest
