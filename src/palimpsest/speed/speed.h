// Decode and prefill speed at a depth (number of tokens already in the cache).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "palimpsest/engine/sequence/lockstep.h"
#include "palimpsest/engine/speculation/draft_price.h"
#include "palimpsest/speed/statistics.h"

namespace palimpsest {

// How the cache is filled with `depth` tokens before timing. kRandom: random rows; speed depends on the number of
// tokens, not on their values. kPrompt: reads a prompt, as llama-bench does. kHistory: for methods that leave empty
// slots, a simulated history (speed/history.h), which leaves them where generation would.
enum class Fill { kRandom, kPrompt, kHistory };
const char* name_of(Fill fill);

enum class SpeedTest { kDecode, kPrefill };

struct SpeedOptions {
  SpeedTest test = SpeedTest::kDecode;
  int depth = 0;
  int tokens = 128;  // decoded one by one, or read as one prompt
  int warm_up = 2;   // decode: untimed tokens before the measurement
  Fill fill = Fill::kRandom;
  int prompt = 0;  // kHistory: tokens of the depth that are inserted as a prompt
  // Decode of one sequence: drafts in a step, of which each stands with probability `accept` if those before it do.
  int drafts = 0;
  double accept = 1;
  bool adaptive = false;  // as many drafts as pay (engine/speculation/draft_length.h), `drafts` at most
  DraftPrice price = DraftPrice();
  std::uint32_t seed = 1;
};

struct SpeedSample {
  double seconds = 0;
  double tokens_per_second = 0;   // of all sequences together
  double ms_p50 = 0, ms_p99 = 0;  // of a step: ITL of one sequence without drafts; decode only
  double tokens_per_step = 1;     // decode only
  // Mean time per step. evict: decisions and moved bytes, all sequences; forward: the rest, of which attention: inside
  // the model's graph, fast path only. Decode only, but prepare, the part of forward before the graph runs: its inputs.
  double ms_forward = 0, ms_evict = 0, ms_attention = 0, ms_prepare = 0;
  long long evicted = 0, evictions = 0;  // of one sequence: tokens, and steps that evicted any
  // Sums over all sequences: keys, values and tables at the end; and the max of keys and values.
  std::size_t cache_bytes = 0, cache_bytes_peak = 0;
  double slots_per_token = 0;  // fragmentation: allocated slots / tokens, mean over sequences, at the end
};

// One round: clear, fill, measure, clear; so the caller can interleave rounds of several batches. Returns a sample of 0
// tokens per second if `go_on` returned false.
SpeedSample measure_speed(Lockstep& batch, int vocabulary, const SpeedOptions& options,
                          const std::function<bool()>& go_on = {});

}  // namespace palimpsest
