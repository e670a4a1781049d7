#include "palimpsest/scheduler_flags.h"

#include <algorithm>

#include "palimpsest/core/error.h"
#include "palimpsest/core/memory.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {

void add_scheduler_flags(CLI::App& command, SchedulerFlags& flags) {
  const char* group = "Scheduler";
  command
      .add_option("--max-num-seqs,--max-sequences,--parallel", flags.max_sequences, "max concurrently running requests")
      ->type_name("N")
      ->group(group)
      ->capture_default_str();
  command.add_option("--cache-memory", flags.cache_mib, "memory for the caches and tables of all requests")
      ->type_name("MIB")
      ->group(group)
      ->default_str("a quarter of the memory (in a container: of its limit), at most 4096");
  command
      .add_option("--prefix-cache-memory", flags.prefix_mib,
                  "part of --cache-memory for kept prefixes and chats; running requests take precedence; 0: off")
      ->type_name("MIB")
      ->group(group)
      ->default_str(flags.prefix_share == 0 ? "0" : "half of --cache-memory");
  command
      .add_option(
          "--cache-reuse", flags.cache_reuse,
          "a resent chat that was changed in its middle reuses runs of at least N tokens behind the change, whose "
          "keys and values are those of the text before; 0: reads all that is behind it")
      ->type_name("N")
      ->group(group)
      ->capture_default_str();
  add_draft_price_flag(command, flags.draft_price, group);
}

std::size_t mib_to_bytes(double mib, const char* flag) {
  if (!(mib > 0 && mib <= 1e9)) fail("{} {}: give a size in MiB", flag, mib);
  return static_cast<std::size_t>(mib * (1 << 20));
}

SchedulerOptions scheduler_options(const SchedulerFlags& flags, const SessionOptions& session) {
  if (session.layerwise)
    fail(
        "--prefill-layerwise with concurrent requests, which share steps and prefixes: leave it out, or use "
        "palimpsest run");
  SchedulerOptions out;
  out.max_sequences = flags.max_sequences;
  out.cache_type = session.cache_type;
  out.page_size = session.page_size;
  out.chunk = session.chunk;
  if (flags.cache_reuse < 0) fail("--cache-reuse {}: give a number of tokens, or 0", flags.cache_reuse);
  out.cache_reuse = flags.cache_reuse;
  out.draft_price = draft_price_of(flags.draft_price);
  out.pool_bytes = flags.cache_mib == 0 ? std::min(memory_bytes() / 4, std::size_t{4} << 30)
                                        : mib_to_bytes(flags.cache_mib, "--cache-memory");
  if (out.pool_bytes > memory_bytes())
    fail("--cache-memory {}: there are {} for this process (the machine's memory, or its control group's limit)",
         flags.cache_mib, human_bytes(memory_bytes()));
  out.prefix_bytes = static_cast<std::size_t>(flags.prefix_share * static_cast<double>(out.pool_bytes));
  if (flags.prefix_mib)
    out.prefix_bytes = *flags.prefix_mib == 0 ? 0 : mib_to_bytes(*flags.prefix_mib, "--prefix-cache-memory");
  if (out.prefix_bytes > out.pool_bytes)
    fail("--prefix-cache-memory {}: it is a part of --cache-memory, which is {}", *flags.prefix_mib,
         human_bytes(out.pool_bytes));
  return out;
}

}  // namespace palimpsest::cli
