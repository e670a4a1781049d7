// What a sequence is made with, and the plan's target that follows from it and a model.
#pragma once

#include <cstddef>
#include <vector>

#include "palimpsest/core/cache_type.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/graph/decoder.h"

namespace palimpsest {

inline constexpr int kDefaultChunk = 512;

struct SessionOptions {
  Method method;
  CacheTypes cache_type = {};  // of keys and of values
  int page_size = 64;
  int chunk = kDefaultChunk;      // tokens of a prompt per step
  bool layerwise = false;         // read prompts layer by layer (PlanTarget::layerwise)
  int draft_max = 0;              // max drafts in a step; 0: none. Models with large query groups have fewer
  bool beside_full = false;       // PlanTarget::beside_full
  std::size_t memory_limit = 0;   // max bytes of keys and values; more throws Error. 0: unlimited
  std::size_t auto_memory = 0;    // max bytes of the sequence with budget auto; 0: unlimited
  bool keep_weights = false;      // keep the attention weights of decode steps: Sequence::kept_weights(). CPU path only
  std::string profile_file = {};  // shares of heads, for split=profile; empty: the model's file (fit/own_shares.h)
  std::vector<TokenId> repeat = {};  // instruction to repeat the prompt (engine/sequence/repeat.h), for Signals::repeat
};

// The target of a plan for this decoder's model and device; allocates nothing.
PlanTarget plan_target(const Decoder& decoder, const SessionOptions& options);
// For the CPU path, without a decoder and a model: to compute bytes.
PlanTarget plan_target(const Hyperparameters& hyper, const SessionOptions& options);

// The first of f16, q8_0, and q8_0 keys with q4 values with which the method keeps as many tokens in auto_memory, or in
// a budget of bytes, as it would without that limit, else the last that this model can have. f16 for methods without
// a budget, and without a limit.
CacheTypes fitting_cache_type(const Hyperparameters& hyper, SessionOptions options);

// Whether a prompt of so many of `tokens` can be read layer by layer with these options, and then takes less memory.
// For the CPU path.
bool layerwise_saves(const Hyperparameters& hyper, SessionOptions options, long long prompt, long long tokens);

// For policies that were trained on a model.
PolicyModel policy_model(const Model& model, const Method& method);

}  // namespace palimpsest
