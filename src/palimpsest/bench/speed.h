// Tokens per second of decoding and of reading prompts, at a depth: with so many tokens already in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "palimpsest/bench/statistics.h"
#include "palimpsest/engine/lockstep.h"

namespace palimpsest {

// How the cache gets its `depth` tokens before the clock starts. Speed depends on how many there are, not on what they
// hold, so random rows do; a prompt that is really read is the proof of that, and is what llama-bench does.
// Where methods leave dead slots behind, a history (bench/history.h) leaves them where they would be.
enum class Fill { kRandom, kPrompt, kHistory };
const char* name_of(Fill fill);

enum class SpeedTest { kDecode, kPrefill };

struct SpeedOptions {
  SpeedTest test = SpeedTest::kDecode;
  int depth = 0;
  int tokens = 128;  // decoded one by one, or read as one prompt
  int warm_up = 2;   // decode: tokens before the clock starts
  Fill fill = Fill::kRandom;
  int prompt = 0;  // kHistory: of the depth, so many were read as a prompt
  std::uint32_t seed = 1;
};

struct SpeedSample {
  double seconds = 0;
  double tokens_per_second = 0;   // of all sequences together
  double ms_p50 = 0, ms_p99 = 0;  // gaps between tokens of one sequence; decode only
  // Where a step's time goes, mean; decode only. evict: decisions and moved bytes, all sequences; attention: inside the
  // model's graph, fast path only.
  double ms_evict = 0, ms_attention = 0;
  long long evicted = 0, evictions = 0;  // of one sequence: tokens, and steps that dropped any
  std::size_t cache_bytes = 0;           // of all sequences
  double slots_per_token = 0;            // fragmentation: slots held / live tokens, mean over sequences, at the end
};

// One round: clear, fill, measure, clear. Rounds of several batches can so be interleaved by the caller.
// Returns a sample of 0 tokens per second when `go_on` said no.
SpeedSample measure_speed(Lockstep& batch, int vocabulary, const SpeedOptions& options,
                          const std::function<bool()>& go_on = {});

}  // namespace palimpsest
