// Runs one step of the model: token ids in, logits out; inserts keys and values into the caches.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/workers.h"
#include "palimpsest/graph/sequence_step.h"
#include "palimpsest/graph/step_threads.h"
#include "palimpsest/model/model.h"

namespace palimpsest {

struct StepTimes {  // of the last step, ms
  double
      build = 0,
      compute = 0,
      attention =
          0;  // attention: part of compute, of the calling thread; only with measure_attention(true) on the fast path
};

struct GraphCounts {  // since the decoder was made
  long long built = 0, run = 0;
};

// Wraps or replaces the attention path of the device, to observe a step from outside.
class AttentionPath;
using WrapPath = std::function<std::unique_ptr<AttentionPath>(std::unique_ptr<AttentionPath>)>;

class Decoder {
 public:
  Decoder(std::shared_ptr<const Model> model, StepThreads threads, const WrapPath& wrap = {});
  ~Decoder();

  // The options of a cache for this decoder: pages in host memory for the fast path, bookkeeping only for the portable
  // path.
  CacheOptions cache_options() const;

  // Makes the storage of a cache without pages; else does nothing. Without it the first step does. `rule`: of all
  // steps.
  void attach_storage(Cache& cache, const AttentionRule& rule) const;

  // Returns logits [rows][vocabulary], rows in the order of the sequences (all tokens or the last of each), or hidden
  // states (SequenceStep::result, SequenceStep::layers). Valid until the next prepare(). Throws Error.
  std::span<const float> step(std::span<const SequenceStep> sequences);
  // step() in two parts. prepare() builds the graph and acquires all memory of the step; it may throw and writes
  // nothing to the caches. run() runs the graph.
  void prepare(std::span<const SequenceStep> sequences);
  std::span<const float> run();
  // How many of the tokens of sequence `sequence` of the last step have keys and values within the range of its cache
  // type: all, or with drafts, those before the first draft that has not. Throws Error if there are none: the cache is
  // unusable then; other sequences are unaffected. step() checks all sequences.
  std::size_t check(std::size_t sequence) const;

  StepThreads threads() const;
  // The threads of steps, for loops between steps; as many as the last step had.
  std::shared_ptr<Workers> workers() const;
  const Model& model() const;
  const StepTimes& times() const;
  std::size_t graph_bytes() const;  // memory of a step's intermediate results
  const GraphCounts& graph_counts() const;
  void measure_attention(bool on);  // fills StepTimes::attention, starting with the next step

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest
