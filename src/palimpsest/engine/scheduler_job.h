// A request that waits or runs. Internal to the scheduler.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "palimpsest/engine/prefix_cache.h"
#include "palimpsest/engine/request.h"
#include "palimpsest/engine/snapshot_loader.h"
#include "palimpsest/engine/step_loop.h"

namespace palimpsest {

inline double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct SchedulerJob;

struct SchedulerShare : StepShare {
  SchedulerJob* job = nullptr;
};

// The bytes of an admitted request, until its sequence is destroyed: longer than it runs, if it is being saved, or was
// cancelled while it was loading.
struct Reservation {
  std::uint64_t id = 0;  // of the request; ids grow in the order of arrival
  std::size_t bytes = 0, beside_pages = 0;
};

struct SchedulerJob {
  std::uint64_t id = 0;
  Request request;
  std::shared_ptr<RequestListener> listener;
  std::shared_ptr<Interrupt> interrupt;    // checked in evictions
  std::size_t need = 0, beside_pages = 0;  // bytes to reserve; of them, all but keys and values
  Clock::time_point submitted = Clock::now();
  Usage usage;
  std::shared_ptr<const MethodPlan> plan;
  std::unique_ptr<Sequence> sequence;  // nullptr until admitted
  std::optional<PrefixKey> rule;       // nullopt for resumed sequences
  std::unique_ptr<Sampler> sampler;
  std::optional<Speculation> speculation;
  TokenId next = -1;                // the token generated last
  std::span<const TokenId> drafts;  // of this step
  std::vector<std::pair<TokenId, float>> top;
  std::vector<TokenId> order;             // [vocabulary] scratch: to find the likeliest tokens
  long long evicted_before = 0;           // tokens that the snapshot's cache had evicted
  std::shared_ptr<SnapshotLoad> loading;  // while set it owns the sequence
  bool kept = false;                      // a KeptSequence owns the sequence
  std::optional<Finish> over;

  SchedulerShare share;
  bool begun = false;  // takes part in this step
  bool key = false;    // this step's tokens are of the prompt

  bool in_prompt() const { return sequence->stage() == Sequence::Stage::kPrompt; }
  std::optional<Finish> how_interrupted() const {
    if (interrupt->cancelled()) return Finish::kCancelled;
    if (interrupt->late()) return Finish::kDeadline;
    return std::nullopt;
  }
  bool lent() const { return kept || loading != nullptr; }  // another thread uses the sequence
};

}  // namespace palimpsest
