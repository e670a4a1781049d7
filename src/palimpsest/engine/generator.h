// Text that goes on: prefill, then sample and decode until a stop, with UTF-8 safe streaming and timings.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/engine/session.h"
#include "palimpsest/text/sampler.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct GenerateOptions {
  long long max_tokens = 256;     // -1: until stopped
  std::vector<std::string> stop;  // the text ends before the first of these
  bool ignore_end = false;        // go on past end-of-text tokens
};

struct Percentiles {
  double mean = 0, p50 = 0, p99 = 0;
};

// Bounded memory however many tokens: percentiles come from a fixed histogram (bins of 1% width).
class Latencies {
 public:
  void add(double milliseconds);
  Percentiles summary() const;
  long long count() const { return count_; }

 private:
  long long count_ = 0;
  double sum_ = 0;
  std::vector<long long> bins_;
};

struct Generation {
  long long prompt_tokens = 0, tokens = 0;
  double ttft_ms = 0;       // time to first token: prompt + first sample
  Latencies tpot;           // time per output token after the first
  std::string stop_reason;  // "length", "stop", "end", "cancelled"
};

// `emit` gets whole UTF-8 characters; text that may turn out to be a stop string is held back.
using Emit = std::function<void(std::string_view text)>;
Generation generate(Session& session, Sampler& sampler, const Vocabulary& vocabulary, std::span<const TokenId> prompt,
                    const GenerateOptions& options, const Emit& emit, const std::atomic<bool>& cancel,
                    const Session::Progress& progress = {});

}  // namespace palimpsest
