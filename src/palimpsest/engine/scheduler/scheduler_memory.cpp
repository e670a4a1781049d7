// Updates of running requests' memory maps (Request::memory).
#include <algorithm>

#include "palimpsest/engine/scheduler/scheduler.h"

namespace palimpsest {
namespace {

using namespace std::chrono_literals;
constexpr auto kInterval = 50ms;

}  // namespace

// Between two updates it only looks at the clock.
void Scheduler::report_memory(Job& job, bool last) noexcept {
  if (!job.memory || job.released() || job.edits_history()) return;
  const auto now = Clock::now();
  if (!last && now < job.memory->next) return;
  try {
    const Sequence& sequence = *job.sequence;
    const Cache& cache = sequence.cache();
    const HeadGeometry& geometry = cache.geometry();
    auto [start, changes] = job.memory->log->take(cache);
    MemoryUpdate update{.read = cache.next(),
                        .first = job.memory->reported,
                        .start = std::move(start),
                        .changes = std::move(changes),
                        .bytes = memory_bytes(sequence),
                        .last = last};
    const auto end = std::min(update.read, std::ssize(job.text));
    if (update.first < end) update.tokens.assign(job.text.begin() + update.first, job.text.begin() + end);
    if (!job.memory->begun) update.plan = job.plan;
    const int chosen =
        job.request.memory->layer < 0 ? -1 : flat_head(geometry, job.request.memory->layer, job.request.memory->head);
    int entries = 0;
    for (int t = 0; t < cache.tables(); ++t) entries += cache.table(t).occupied();
    const bool all = last && entries / cache.tables() * geometry.heads() <= MemoryUpdate::kMaxHeadTokens;
    if (all || chosen >= 0) sequence.fetch_scores();
    for (int head = 0; head < geometry.heads(); ++head)
      if (all || head == chosen) update.heads.emplace_back(head, head_memory(cache, head));
    job.memory->reported = std::max(update.first, end);
    job.memory->begun = true;
    job.memory->next = now + kInterval;
    job.listener->memory(std::move(update));
  } catch (...) {  // without memory: the next update begins with the cache's state
    job.memory->log->lose();
  }
}

}  // namespace palimpsest
