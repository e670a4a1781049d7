#include "palimpsest/interrupt.h"

#include <csignal>

namespace palimpsest::cli {
namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers may only touch lock-free atomics");

void on_signal(int) {
  flag = true;
}

void install() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  // The second signal ends the program. Restarted: a write that waits for a slow terminal goes on; input is polled.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

std::atomic<bool>& interrupted() {
  static const bool installed = (install(), true);
  (void)installed;
  return flag;
}

void rearm_interrupt() {
  flag = false;
  install();
}

}  // namespace palimpsest::cli
