// One sequence's share of a step: its tokens, its cache, how its queries attend, and who hears of keys and weights.
#pragma once

#include <cstdint>
#include <span>

#include "palimpsest/attention/attention.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

// Who wants to know of a step's keys, values and attention weights as they come. Heads are flat (cache/geometry.h).
class AttentionReceiver {
 public:
  virtual ~AttentionReceiver() = default;
  // A head's keys and values of the step's new tokens, un-rotated, one row a token. Called once per head if
  // SequenceStep::report_kv. Several threads call at a time, for different heads.
  virtual void on_insert_kv(int head, Rows keys, Rows values) = 0;
  // A head's weights of this step are complete, and still in this thread's cache. Called once per head, layer by layer:
  // the heads of two layers may share their memory. Several threads call at a time, for different heads.
  virtual void on_weights(int head) = 0;
  // The queries of the step's new tokens of query head `member` of a KV head's group, un-rotated, one row a token.
  // Called once per query head if SequenceStep::queries. Threads as above; the heads of one group are told by one.
  virtual void on_queries(int /*head*/, int /*member*/, Rows /*queries*/) {}
};

// Layers [first, last) of the model.
struct LayerRange {
  int first = 0, last = INT32_MAX;  // past the model's last layer: up to it
  bool operator==(const LayerRange&) const = default;
};

// One sequence's share of a step. Before the call: the plan was applied and slots for the tokens were taken.
struct SequenceStep {
  Cache* cache = nullptr;
  AttentionRule rule = {};
  std::span<const TokenId> tokens = {};
  bool all_logits = false;          // logits of every token, or of the last only
  float* const* weights = nullptr;  // see AttentionStep::weights, [heads]; nullptr: not wanted
  float* const* sums = nullptr;     // AttentionStep::sums, likewise; only beside weights, and on the fast path
  int weights_queries = INT32_MAX;  // of so many of the last tokens' queries
  WeightReduction weight_reduction = WeightReduction::kMeanOverGroup;
  AttentionReceiver* receiver = nullptr;
  bool report_kv = false;  // the receiver hears of new keys and values
  bool queries = false;    // ... and of queries; the fast path only

  // A step may run some of the layers only; slots are taken before the first ones run. All sequences of a step run the
  // same. Where the last layer is not among them the step returns hidden states, [tokens][width], of all tokens; where
  // the first is not, `hidden` are those that the layers before returned. The CPU's own path only.
  LayerRange layers = {};
  std::span<const float> hidden = {};
};

}  // namespace palimpsest
