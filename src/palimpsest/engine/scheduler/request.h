// A request to the scheduler, and the listener that receives its tokens.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/core/pooling.h"
#include "palimpsest/core/shared_tokens.h"
#include "palimpsest/engine/generation/token_loop.h"
#include "palimpsest/engine/sequence/memory_update.h"
#include "palimpsest/engine/sequence/text_edit.h"
#include "palimpsest/engine/speculation/speculation.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/text/sampler.h"

namespace palimpsest {

class KeptSequence;
class Snapshot;

using Clock = std::chrono::steady_clock;

// What a request may take from the PrefixCache, and leaves there.
enum class Reuse {
  kNothing,
  kPrefixes,  // prefixes of prompts: the answer is bitwise equal to one without
  kHistories  // also the caches of earlier requests with their answers: the answer may differ, see prefix_cache.h
};

struct Request {
  SharedTokens prompt;  // at least one token, unless `resume`
  Method method;        // per request, with its own budget
  SamplerOptions sampler = {};
  // The text begins with these tokens, read one by one as if they had been generated: for their log probabilities.
  SharedTokens given = {};
  long long max_tokens = 256;  // to generate, `given` included
  bool ignore_end = false;     // continue after end-of-text tokens
  int priority = 0;            // waiting requests of the greatest are admitted first
  // Drafts by prompt lookup; the text is the same (docs/decisions/0023: where to the bit). `max` 0: none.
  DraftOptions drafts = {.max = 0};
  int top_logprobs = -1;  // -1: no logprobs; n: of the token and of the n likeliest
  std::optional<Clock::time_point> deadline = {};
  // A snapshot of the same method to continue from; the prompt is appended. Without a prompt the text and the sampler
  // continue exactly as if never interrupted.
  std::shared_ptr<const Snapshot> resume = {};
  // Edits the text of `resume`, without a prompt and with max_tokens 0: the sequence ends with kLength, to be kept.
  std::optional<TextEdit> edit = {};
  Reuse reuse = Reuse::kPrefixes;       // a resumed request reuses nothing
  std::optional<int> cache_reuse = {};  // with kHistories: instead of SchedulerOptions::cache_reuse
  // The caches that it leaves are evicted after all others for this time, which begins anew when they are used.
  std::chrono::seconds pin{0};
  std::string session = {};  // of several requests; see Scheduler::close_session
  int scope = 0;             // requests of different scopes (API keys) share nothing in the PrefixCache
  // Not kNone: the prompt is read for its embedding (RequestListener::embedded); nothing is generated, and max_tokens
  // is 0.
  Pooling pooling = Pooling::kNone;
  std::optional<MemoryView> memory = {};  // report what the cache keeps to RequestListener::memory()
  bool keep = false;                      // on kEnd, kLength and kStopped: hand the sequence to RequestListener::kept()
};

struct Usage {
  long long prompt_tokens = 0, tokens = 0;  // read, written
  long long cached = 0;                     // prompt tokens found in the PrefixCache: the others are read
  long long from_disk = 0;                  // of these, found in the DiskCache
  // Of these, tokens behind a change of the text: their keys and values are those of the text before (TextEdit).
  long long reused = 0;
  long long edited = 0;   // prompt tokens read before the reused ones, in the place of others
  long long evicted = 0;  // tokens evicted from the cache
  DraftCounts drafts;
  std::string method = {};  // with its budget in tokens
  int cache_tokens = 0;     // in the cache at the end
  std::size_t cache_bytes_peak = 0;
  double queue_ms = 0, ttft_ms = 0, total_ms = 0;  // since submit(): admission, first token, end
  std::string error = {};
  bool invalid_request = false;  // the error is the request's: the same request would fail again
};

// Called on the scheduler's thread: must return quickly.
class RequestListener {
 public:
  virtual ~RequestListener() = default;
  // Called before every step. false: the sequence pauses (a slow reader) and keeps its pages.
  virtual bool ready() { return true; }
  // After a chunk of the prompt: how much of it has been read by now, the cached tokens included.
  virtual void prompt_read(long long tokens, long long cached) { static_cast<void>(tokens), static_cast<void>(cached); }
  virtual bool written(const SampledToken& token) = 0;  // false: stop
  // Before finished(), if the request pools: the pooled hidden states after the last norm, [width], of Euclidean length
  // 1. Valid during the call.
  virtual void embedded(std::span<const float>) {}
  // Called after a step and before kept(), if Request::memory is set.
  virtual void memory(MemoryUpdate) {}
  // Called before finished(). Write the snapshot on another thread; its pages are freed when it is destroyed.
  virtual void kept(std::shared_ptr<const KeptSequence>) {}
  virtual void finished(Finish finish, const Usage& usage) = 0;  // the last call, and exactly one
};

}  // namespace palimpsest
