// A request that waits or runs. Internal to the scheduler.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "palimpsest/engine/scheduler/disk_cache.h"
#include "palimpsest/engine/scheduler/prefix_cache.h"
#include "palimpsest/engine/scheduler/request.h"
#include "palimpsest/engine/scheduler/wait_estimate.h"
#include "palimpsest/engine/sequence/snapshot_loader.h"
#include "palimpsest/engine/sequence/step_loop.h"
#include "palimpsest/text/logprobs.h"

namespace palimpsest {

inline double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Texts of more tokens are not kept as histories: their tokens alone would grow without bound.
inline constexpr long long kMaxHistory = 1 << 20;
inline std::size_t text_bytes(long long tokens) {  // of SchedulerJob::text
  return static_cast<std::size_t>(std::min(tokens, kMaxHistory)) * sizeof(TokenId);
}

struct SchedulerJob;

struct SchedulerShare : StepShare {
  SchedulerJob* job = nullptr;
};

// The bytes of an admitted request, until its sequence is destroyed: longer than it runs, if it is being saved, or was
// cancelled while it was loading.
struct Reservation {
  std::uint64_t id = 0;  // of the request; ids grow in the order of arrival
  std::size_t bytes = 0, overhead_bytes = 0;
};

struct SchedulerJob {
  std::uint64_t id = 0;
  Request request;
  std::shared_ptr<RequestListener> listener;
  std::shared_ptr<Interrupt> interrupt;                // checked in evictions
  std::size_t reserved_bytes = 0, overhead_bytes = 0;  // of the overhead: all but keys and values
  Clock::time_point submitted = Clock::now();
  Usage usage;
  std::shared_ptr<const MethodPlan> plan;
  std::unique_ptr<Sequence> sequence;   // nullptr until admitted
  std::optional<PrefixKey> prefix_key;  // of its prompt's prefixes; nullopt if it neither uses nor leaves any
  std::optional<PrefixKey> history;     // of histories, likewise
  std::vector<TokenId> text;            // if holds_text(): the tokens of the sequence, and `next`; -1: unknown
  std::vector<TokenId> rest;            // the prompt's continuation of a history
  std::vector<TextEdit> edits;          // of a history, until its text is the beginning of the prompt
  std::size_t edits_begun = 0;
  std::vector<float> known_logits;  // [vocabulary] of a prompt that is a history: nothing of it is read
  std::unique_ptr<Sampler> sampler;
  std::optional<Speculation> speculation;
  std::optional<TokenLoop> loop;          // with the sequence
  TokenId next = -1;                      // the token generated last
  LikeliestTokens likeliest;              // with Request::top_logprobs
  std::vector<double> pooled;             // [width] with Request::pooling: the sum so far, or the last row
  long long dropped_before = 0;           // Cache::dropped() of the snapshot's cache
  std::shared_ptr<SnapshotLoad> loading;  // while set it owns the sequence
  std::string disk_key;                   // DiskCache::key_of
  std::vector<DiskCache::File> on_disk;   // that may be loaded
  struct FromDisk {                       // of `loading`, if it loads one of these
    DiskCache::File file;
    std::shared_ptr<DiskCache::Head> head = std::make_shared<DiskCache::Head>();
    Clock::time_point begun = Clock::now();
  };
  std::optional<FromDisk> from_disk;
  bool kept = false;  // a KeptSequence owns the sequence
  struct Memory {     // with Request::memory
    std::shared_ptr<MemoryLog> log = std::make_shared<MemoryLog>(MemoryUpdate::kMaxChanges);
    Clock::time_point next = {};  // no update before
    Position reported = 0;        // tokens of the text in updates so far
    bool begun = false;           // the first update was reported
  };
  std::optional<Memory> memory;
  std::optional<Finish> over;

  SchedulerShare share;
  bool begun = false;       // takes part in this step
  bool is_prefill = false;  // this step's tokens are of the prompt

  // Its text is needed: to keep its history, to save it, or to show it.
  static bool needs_text(const Request& request) { return request.keep || request.memory.has_value(); }
  bool holds_text() const { return history.has_value() || needs_text(request); }
  TokensLeft tokens_left() const {
    const std::size_t read = sequence == nullptr ? request.prompt.size() : in_prompt() ? sequence->tokens_left() : 0;
    return {static_cast<long long>(read), request.max_tokens - usage.tokens};
  }
  bool edits_history() const { return !edits.empty(); }
  bool in_prompt() const { return sequence->stage() == Sequence::Stage::kPrompt; }
  std::optional<Finish> how_interrupted() const {
    if (interrupt->cancelled()) return Finish::kCancelled;
    if (interrupt->late()) return Finish::kDeadline;
    return std::nullopt;
  }
  bool released() const { return kept || loading != nullptr; }  // another thread uses the sequence
};

}  // namespace palimpsest
