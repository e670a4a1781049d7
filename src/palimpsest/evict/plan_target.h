// The model, device and kind of cache that a method is compiled for (evict/method_plan.h).
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "palimpsest/budget/split.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/core/attention_rule.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

struct PlanTarget {
  // Geometry, cache types, page size, and whether keys and values are stored in host pages.
  CacheOptions shape = {};
  PositionKind positions = PositionKind::kNone;
  bool shares_layers = false;       // layers read the caches of other layers
  bool several_streams = false;     // hidden states of several streams go from layer to layer, or embeddings of layers
  bool scores_by_position = false;  // not by distance only: AttentionShape::query_factor
  int trained_context = 0;          // of the model; 0: unknown
  std::size_t memory = 0;           // max bytes of a sequence with budget auto; 0: unlimited
  int chunk = 512;                  // tokens of a prompt per step
  bool layerwise = false;           // prompts are read layer by layer (engine/sequence/prompt_passes.h)
  int width = 0;                    // of hidden states
  int draft_max = 0;                // max drafts in a step of decode; 0: none
  int vocabulary = 0;               // logits of each draft
  bool shares_steps = false;        // batched with other sequences
  bool shares_pages = false;        // ... whose pages are from the same pool
  bool beside_full = false;         // another cache holds all tokens of the text (Method::lossless)
  // Files of the splits `duo` and `profile`; empty: there is none.
  std::string streaming_head_file = {}, profile_file = {};
  // For policies with Signals::model; empty: the plan only computes bytes, and no evictor can be made from it.
  std::function<PolicyModel()> model = {};

  const std::string& file_of(const Split& split) const {  // of Split::is_beside_model()
    return split == Split::kDuo ? streaming_head_file : profile_file;
  }
};

}  // namespace palimpsest
