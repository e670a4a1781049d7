// Text that goes on: prefill, then sample and decode until a stop, with UTF-8 safe streaming and timings.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/engine/latencies.h"
#include "palimpsest/engine/session.h"
#include "palimpsest/text/sampler.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct GenerateOptions {
  long long max_tokens = 256;     // -1: until stopped
  std::vector<std::string> stop;  // the text ends before the first of these
  bool ignore_end = false;        // go on past end-of-text tokens
  std::size_t known = 0;  // the prompt's first tokens were sampled by this very sampler: `unread` of an earlier text
  bool keep = false;      // Generation::written
};

struct Generation {
  long long prompt_tokens = 0, tokens = 0;
  double ttft_ms = 0;                 // time to first token: prompt + first sample
  Latencies tpot;                     // time per output token after the first
  std::string stop_reason;            // "length", "stop", "end", "cancelled"
  std::vector<TokenId> written = {};  // all tokens, if asked for
  TokenId unread = -1;  // the last token, if the model has not read it yet: a next prompt begins with it. -1: none
};

// `emit` gets whole UTF-8 characters; text that may turn out to be a stop string is held back until it is known.
// A prompt of nothing but control tokens begins a text: the space that some vocabularies put there is left out.
using Emit = std::function<void(std::string_view text)>;
Generation generate(Session& session, Sampler& sampler, const Vocabulary& vocabulary, std::span<const TokenId> prompt,
                    const GenerateOptions& options, const Emit& emit, const std::atomic<bool>& cancel,
                    const Session::Progress& progress = {});

}  // namespace palimpsest
