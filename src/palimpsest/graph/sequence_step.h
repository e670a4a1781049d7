// One sequence's part of a step: its tokens, its cache, its attention rule, and the receiver of keys and weights. A
// step's arguments, from the whole to a head:
//
//   Step            all sequences, for every layer (graph/step.h)
//   SequenceStep    one sequence, as the engine gives it
//   SequenceTokens  the same for attention: its rule and request, and rows of positions (attention/attention.h)
//   LayerStep       one layer: all SequenceTokens, q, k, v, out (attention/attention.h)
//   HeadStep        one head of a layer (attention/work.h)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "palimpsest/attention/attention.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/recall_tier.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

// What a step computed of one head, before the next layer runs. Heads are flat (cache/geometry.h).
struct StepSignal {
  enum class Kind {
    kWeights,        // a head's weights of this step (SequenceStep::weights) are complete; once per head
    kKeysAndValues,  // of the step's new tokens, un-rotated, one row per token; once per head, if report_kv
    kQueries,        // likewise, of one query head; once per query head, if report_queries
    kVictim          // the slot with the lowest score; once per head, if fading
  };
  Kind kind;
  int head;
  int member = 0;    // kQueries: index in the KV head's group; kVictim: the slot
  Rows rows = {};    // keys or queries
  Rows values = {};  // kKeysAndValues
};

struct RelativeRange {  // [first, last)
  std::int32_t first = 0, last = 0;
  bool contains(std::int32_t relative) const { return relative >= first && relative < last; }
};

// Layer by layer (so layers may share the memory of weights); concurrently for different heads, and for queries of
// different groups; on the core that has the rows in its cache.
class AttentionReceiver {
 public:
  virtual ~AttentionReceiver() = default;
  virtual void receive(const StepSignal& signal) = 0;
  // With SequenceStep::fading, before the step: of each slot of a head 0, or -infinity: it cannot be the victim.
  virtual void guard(int /*head*/, std::span<float> /*mask*/) {}
  // The same, if the victims are all tokens at some positions relative to the table's base; else nothing.
  virtual std::optional<RelativeRange> victims_within(int /*head*/) { return {}; }
  // Called for a head whose drafts have neither slots nor SlotsView::patches, before each draft `query` attends, in
  // order. The weights of the query before are complete; `key`, `value`: its token's, un-rotated. Returns the patches
  // of all drafts up to this one, valid until the layer's end.
  virtual std::span<const SlotPatch> find_patches(int /*head*/, int /*query*/, Rows /*key*/, Rows /*value*/) {
    return {};
  }
};

// Layers [first, last) of the model.
struct LayerRange {
  int first = 0, last = INT32_MAX;  // `last` may exceed the model's number of layers
  bool operator==(const LayerRange&) const = default;
};

// What a row of a step's result is: logits [vocabulary], or the hidden state after the last norm [width].
enum class StepResult { kLogits, kHidden };

// One sequence's part of a step. The tokens' slots are already taken (Cache::insert).
struct SequenceStep {
  Cache* cache = nullptr;
  AttentionRule rule = {};
  std::span<const TokenId> tokens = {};
  int expected_slots = 0;   // of the cache while its prompt is read, at most: a device takes memory for them at once
  bool all_logits = false;  // rows of every token; false: of the last only
  StepResult result = StepResult::kLogits;  // equal for all sequences of a step
  float* const* weights = nullptr;          // see LayerStep::weights, [heads]; nullptr: not requested
  float* const* sums = nullptr;             // LayerStep::sums, likewise; only with weights, and on the fast path
  AttentionRequest request = {};
  // The device keeps the scores of slots: fading * score + the weights of the step's one token, 0 for a new one. The
  // receiver gets the slots with the lowest. On devices only, instead of weights.
  std::optional<float> fading = {};
  AttentionReceiver* receiver = nullptr;
  bool report_kv = false;       // the receiver gets keys and values
  bool report_queries = false;  // the receiver gets queries; fast path only
  // Evicted tokens, of which each query attends to the best `recall_pages` pages beside those kept, or, unless
  // `recall_chooses`, to those of the last choice (attention/recalled.h); nullptr: none. Fast path only.
  RecallTier* recall = nullptr;
  int recall_pages = 0;
  bool recall_chooses = true;

  // The layers to run; slots are taken in their tables before. Equal for all sequences of a step. Without the last
  // layer the step returns hidden states [tokens][width] of all tokens; without the first layer its input is `hidden`,
  // as returned by the layers before. Fast path only.
  LayerRange layers = {};
  std::span<const float> hidden = {};
};

}  // namespace palimpsest
