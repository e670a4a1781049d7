// Flags of the scheduler, for those who serve and those who measure it.
#pragma once

#include "palimpsest/engine/scheduler.h"
#include "palimpsest/options.h"

namespace palimpsest::cli {

struct SchedulerFlags {
  int max_sequences = 64;
  double cache_mib = 0;  // 0: chosen by the machine
  std::optional<double> prefix_mib = {};
  double prefix_share = 0;  // of the cache memory, unless prefix_mib says otherwise
};
void add_scheduler_flags(CLI::App& command, SchedulerFlags& flags);

// With the cache of the session; the queue is the caller's. Throws Error for more memory than there is.
SchedulerOptions scheduler_options(const SchedulerFlags& flags, const SessionOptions& session);

// Throws Error that names the flag.
std::size_t mib_to_bytes(double mib, const char* flag);

}  // namespace palimpsest::cli
