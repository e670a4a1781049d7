// Ctrl-C: the first asks for a clean end, the second ends the program at once.
#pragma once

#include <atomic>

namespace palimpsest::cli {

// Set by SIGINT and SIGTERM from the first call of this function on. Whoever has acted on it may clear it
// (rearm_interrupt): then the next Ctrl-C asks again.
std::atomic<bool>& interrupted();
void rearm_interrupt();

}  // namespace palimpsest::cli
