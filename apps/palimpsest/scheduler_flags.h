// Flags of the scheduler, shared by serve and bench serve.
#pragma once

#include "palimpsest/engine/scheduler/scheduler.h"
#include "palimpsest/options.h"

namespace palimpsest::cli {

struct SchedulerFlags {
  int max_sequences = 64;
  double cache_mib = 0;  // 0: derived from the machine's memory
  std::optional<double> prefix_mib = {};
  double prefix_share = 0;  // fraction of the cache memory, unless prefix_mib is given
  int cache_reuse = 0;
  std::string draft_price = "auto";
};
void add_scheduler_flags(CLI::App& command, SchedulerFlags& flags);

// Takes cache options from `session`; leaves queue options to the caller. Throws Error for more memory than this
// machine has.
SchedulerOptions scheduler_options(const SchedulerFlags& flags, const SessionOptions& session);

// Throws Error that names the flag.
std::size_t mib_to_bytes(double mib, const char* flag);

}  // namespace palimpsest::cli
