// What the model's steps report to a sequence's policy: weights, keys and values of new tokens, queries. All of it
// comes in by receive(), on the threads of the step, and goes on by deliver():
//
//   a step            receive() -> deliver()            at once, while the rows are in the CPU's caches
//   one with drafts   receive() -> HeldSignals          until the drafts are accepted; then of each accepted token
//                     replay()  -> deliver()
//                     find_patches() -> DraftPreview    what the next draft would evict, if that follows from them
//
// deliver() passes a signal to the evictor, adds queries to the head's statistics, and keeps weights that the caller
// wants to see (SessionOptions::keep_weights).
#pragma once

#include <atomic>
#include <exception>
#include <span>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/engine/sequence/draft_preview.h"
#include "palimpsest/engine/sequence/held_signals.h"
#include "palimpsest/evict/evictor.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/graph/sequence_step.h"

namespace palimpsest {

// What the query of a decode step gave each token of a head: the mean over the query group, or what the policy's
// signals reduce it to (Signals::reduction()). In slot order when the step attended; an empty slot has position
// kNoPosition.
struct KeptWeights {
  std::vector<Position> position;  // in the text
  std::vector<float> weight;       // of each position
};

class SignalCollector final : public AttentionReceiver {
 public:
  // All of one sequence, which outlives it.
  SignalCollector(const MethodPlan& plan, Cache& cache, Evictor& evictor, DraftPreview& preview, bool keep_weights);

  // Requests what the policy can use of a step with these tokens, whose slots are taken. `left`: tokens of the prompt
  // after them; -1: in decode. `step.drafts` and `step.layers` are set.
  void begin(SequenceStep& step, Phase phase, long long left);
  void receive(const StepSignal& signal) noexcept override;
  void guard(int head, std::span<float> mask) override;
  std::optional<RelativeRange> victims_within(int head) override;
  std::span<const SlotPatch> find_patches(int head, int query, Rows key, Rows value) noexcept override;
  // After the step: throws what receive() threw on any thread.
  void check();
  // Delivers what a step with drafts held of token `index`, which is the newest one now.
  void replay(int index);

  // The weights of the last decode step without drafts. Empty after other steps, and for heads whose weights the step
  // did not compute (a windowed layer that the policy never evicts from).
  const KeptWeights& kept(int head) const { return kept_[at(head)]; }

 private:
  struct Buffers {                           // of the running layer's weights; layers share them
    std::vector<std::vector<float>> of_row;  // [max KV heads of a layer][rows][slots and merged tokens]
    std::vector<float*> of_head;             // [heads] in them; nullptr: the head's policy never decides
  };
  void deliver(const StepSignal& signal, std::span<const float> sums);
  void fetch_scores();
  void make_room(Buffers& buffers, std::size_t rows);
  bool decides(int head) const;
  bool wants_weights(int head) const;  // of this step
  Rows weights_of(int head) const;
  std::span<const float> sums_of(int head) const;
  void fail() noexcept;
  void keep(int head, const Rows& weights);

  const MethodPlan& plan_;
  Cache& cache_;
  Evictor& evictor_;
  DraftPreview& preview_;
  bool keep_weights_;
  Signals signals_;                    // of the step's phase
  int first_head_ = 0, end_head_ = 0;  // of the step's layers
  bool drafts_ = false;                // of the step
  bool keeps_ = false;                 // the step's weights are kept
  Buffers weights_, sums_;
  int stride_ = 0;  // between the rows of weights
  HeldSignals held_;
  std::vector<KeptWeights> kept_;  // [heads] if keep_weights
  std::atomic_flag failed_;        // receive() threw, on any thread
  std::exception_ptr failure_;     // the first exception
};

}  // namespace palimpsest
