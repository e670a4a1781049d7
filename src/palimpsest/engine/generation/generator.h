// Text generation: prefill, then sample and decode until a stop, with UTF-8 safe streaming and timings.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/engine/generation/latencies.h"
#include "palimpsest/engine/generation/token_loop.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/engine/speculation/speculation.h"
#include "palimpsest/text/sampler.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct GenerateOptions {
  long long max_tokens = 256;     // -1: unlimited
  std::vector<std::string> stop;  // stop strings; not part of the text
  bool ignore_end = false;        // continue after end-of-text tokens
  std::size_t known = 0;          // first tokens of the prompt that this sampler has sampled: an earlier `unread`
  bool keep = false;              // fill Generation::written
  // Drafts for a session with SessionOptions::draft_max. The text is that without drafts, to the bit
  // (docs/decisions/0023).
  Speculation* drafts = nullptr;
};

struct Generation {
  long long prompt_tokens = 0, tokens = 0;
  double ttft_ms = 0;                 // time to first token: prefill + first sample
  Latencies tpot;                     // time per output token after the first
  EvictionTimes evictions;            // after the prompt
  Finish finish = Finish::kFailed;    // kEnd, kLength, kStopped, kCancelled
  std::vector<TokenId> written = {};  // all tokens, if GenerateOptions::keep
  DraftCounts drafts;                 // of this text
  // Tokens after the first for each of the session's steps: 1 without drafts.
  double tokens_per_pass() const {
    const long long more = tokens - 1, passes = more - drafts.accepted;
    return passes > 0 ? static_cast<double>(more) / static_cast<double>(passes) : 1;
  }
  TokenId unread = -1;  // the last token, if the model has not read it: the next prompt starts with it. -1: none
};

// `emit` gets whole UTF-8 characters; text that may be part of a stop string is held back until that is decided.
// After a prompt of control tokens only, the leading space that some vocabularies add is removed.
using Emit = std::function<void(std::string_view text)>;
Generation generate(Session& session, Sampler& sampler, const Vocabulary& vocabulary, std::span<const TokenId> prompt,
                    const GenerateOptions& options, const Emit& emit, const std::atomic<bool>& cancel,
                    const Session::Progress& progress = {});

}  // namespace palimpsest
