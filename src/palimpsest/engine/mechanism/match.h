// Mechanism match: before an eviction's victims are dropped, biases and values of the kept tokens of their heads are
// fitted to what the last queries got from all tokens (engine/mechanism/attention_fit.h). Heads are independent. A
// later eviction fits again, from the values and biases that are there: its target is the cache as it is, not the text.
//
//   reference queries   the last Method::references queries of each query head of the group, as far as they were read
//                       (engine/mechanism/query_statistics.h), each with the tokens that it sees
//   biases              a column of the slot table (Cache::biases)
//   values              overwritten in place, rounded to the cache's type
#pragma once

#include <span>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/victims.h"
#include "palimpsest/core/interrupt.h"
#include "palimpsest/core/rope.h"
#include "palimpsest/core/workers.h"
#include "palimpsest/engine/mechanism/attention_fit.h"
#include "palimpsest/model/hyperparameters.h"
#include "palimpsest/policy/signals.h"

namespace palimpsest {

// How a model's queries score keys, besides their product.
struct ScoreRule {
  explicit ScoreRule(const Hyperparameters& hyper)
      : scale(hyper.attention_scale),
        soft_cap(hyper.attention_soft_cap),
        alibi(hyper.alibi),
        sink_logits(hyper.sink_logits),
        query_factors(hyper.query_factors) {}

  float scale, soft_cap;
  std::vector<float> alibi;                                    // [a layer's query heads] or empty
  std::vector<std::vector<float>> sink_logits, query_factors;  // [layers] or empty
};

// Call it before the plan's drop is committed. `frequencies`: [layers], the RoPE tables; empty: keys are not rotated.
// Makes the cache's pages exclusive. Checks `interrupt` (nullptr: none) before each head; after an exception the cache
// can only be cleared.
void match_kept(Cache& cache, const Victims& plan, const ReferenceQueries& references, const ScoreRule& rule,
                std::span<const RopeFrequencies> frequencies, Workers* workers, const Interrupt* interrupt = nullptr,
                const FitOptions& options = {});

}  // namespace palimpsest
