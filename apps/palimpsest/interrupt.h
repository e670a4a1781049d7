// Ctrl-C: the first requests a clean end, the second ends the program at once.
#pragma once

#include <atomic>

namespace palimpsest::cli {

// Set by SIGINT and SIGTERM. The first call installs the handler. rearm_interrupt() clears the flag, so that the next
// Ctrl-C sets it again.
std::atomic<bool>& interrupted();
void rearm_interrupt();

}  // namespace palimpsest::cli
