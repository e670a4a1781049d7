// What the drafts of a step would change if they were accepted, one by one: the tokens that each drops, and its slot.
// Only copies of the slot tables change.
//
//   policies by position, windows of layers    begin(), before the step
//   policies by weights or by new keys         next(), while the head's layer runs: a draft's victim follows from what
//                                              the tokens before it report
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/evict/evictor.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/graph/sequence_step.h"

namespace palimpsest {

class DraftPreview {
 public:
  // All of one sequence, which outlives it.
  DraftPreview(const MethodPlan& plan, Cache& cache, const Evictor& evictor);

  // Before a step whose first token has its slot: shows the cache what `drafts` more tokens would change
  // (Cache::preview), but for heads that next() is for. Returns how many: those before the first that moves tokens, or
  // may map or free a page. Throws std::bad_alloc.
  int begin(int drafts);
  // `reported`: what a head reported of the token before draft `query`. Returns the patches of all drafts up to this
  // one. Threads may call it for different heads of a layer.
  std::span<const SlotPatch> next(const StepSignal& reported, int query);
  // Whether the newest token has the slot that draft `query` had here.
  bool holds(int query) const;

 private:
  struct Scratch {
    std::optional<SlotTable> table;
    std::vector<int> outside, victims;  // of one draft
    std::vector<Move> moves;
  };
  bool in_layer(int table) const { return plan_.previews_in_layers() && evictor_.decides(table); }
  bool advance(Scratch& scratch, int table, int query);

  const MethodPlan& plan_;
  Cache& cache_;
  const Evictor& evictor_;
  std::vector<std::vector<SlotPatch>> patches_;  // [table]
  std::vector<Scratch> scratch_;                 // [max KV heads of a layer]
};

}  // namespace palimpsest
