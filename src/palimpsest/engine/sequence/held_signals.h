// What a step with drafts reports to the policy, by token, until the drafts are accepted: the policy then gets each
// accepted token's as if a step had read it alone. Heads are flat (cache/geometry.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

class HeldSignals {
 public:
  // A step of `tokens` tokens, which the cache holds. `weights`: of these heads.
  void begin(const Cache& cache, int tokens, const std::vector<bool>& weights);
  // [heads] One row of weights per token, weights_stride() floats apart (SequenceStep::weights); nullptr: not held.
  float* const* weights() const { return weights_of_.data(); }
  std::ptrdiff_t weights_stride() const { return stride_; }

  // As the callbacks of AttentionReceiver, from any thread.
  void hold_kv(int head, Rows keys, Rows values);
  void hold_queries(int head, int member, Rows queries);

  // What belongs to the step's token `index`. Weights: one per slot and entry of the head's table as it is now (new
  // slots: 0); valid until the next call from this thread.
  std::span<const float> weights(const Cache& cache, int head, int index) const;
  Rows key(int head, int index) const { return row(keys_, head, index); }
  Rows value(int head, int index) const { return row(values_, head, index); }
  Rows query(int head, int member, int index) const;

 private:
  struct Held {  // rows of one head
    std::vector<float> data;
    int width = 0;
  };
  static void hold(Held& held, Rows rows);
  static Rows row(const std::vector<Held>& held, int head, int index);

  std::ptrdiff_t stride_ = 0;
  std::vector<std::vector<float>> weights_;  // [head][token][slot, entry]
  std::vector<float*> weights_of_;           // [head]
  std::vector<int> slots_;                   // [head] when the step ran
  std::vector<Held> keys_, values_;          // [head][token][width]
  std::vector<std::vector<Held>> queries_;   // [head][member][token][width]
};

}  // namespace palimpsest
