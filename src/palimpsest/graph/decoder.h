// Runs one step of the model: token ids in, logits out, keys and values into the caches.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "palimpsest/cache/cache.h"
#include "palimpsest/graph/sequence_step.h"
#include "palimpsest/model/model.h"

namespace palimpsest {

struct StepTimes {  // of the last step, ms
  double build = 0, compute = 0,
         attention = 0;  // attention: inside compute, thread 0; only if asked for, and of the fast path
};

// Puts another attention around, or in the place of, the one that suits the device: how a step is watched from outside.
class AttentionPath;
using WrapPath = std::function<std::unique_ptr<AttentionPath>(std::unique_ptr<AttentionPath>)>;

class Decoder {
 public:
  Decoder(std::shared_ptr<const Model> model, int threads, const WrapPath& wrap = {});
  ~Decoder();

  // The cache that this decoder can write to: pages in host memory for the fast path, bookkeeping only for the portable
  // path.
  CacheOptions cache_options() const;

  // Logits [rows][vocabulary], rows in the order of the sequences (all tokens or the last of each), or hidden states
  // (SequenceStep::layers). Valid until the next prepare(). Throws Error.
  std::span<const float> step(std::span<const SequenceStep> sequences);
  // step() in two parts. prepare() builds the graph and takes all memory of the step; it may throw and writes nothing
  // to the caches. run() runs what was prepared.
  void prepare(std::span<const SequenceStep> sequences);
  std::span<const float> run();
  // Throws Error if a new key or value of this sequence, by its index in the step that ran last, does not fit its cache
  // type: its cache is of no use any more, the others' are unharmed. step() checks all.
  void check(std::size_t sequence) const;

  int threads() const;
  const Model& model() const;
  const StepTimes& times() const;
  std::size_t graph_bytes() const;  // of the results of a step's operators
  void measure_attention(bool on);  // fills StepTimes::attention from the next step on

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest
