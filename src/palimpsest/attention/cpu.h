// The fast path: Highway SIMD over tiles of 16 slots, K loaded once per query group.
// Results do not depend on the number of threads: work is cut at fixed slots and reduced in a fixed order.
#pragma once

#include <cstddef>

#include "palimpsest/attention/attention.h"

namespace palimpsest {

// Memory shared by the threads of one call; reused between layers and steps, grows only.
class AttentionScratch {
 public:
  AttentionScratch();
  ~AttentionScratch();
  AttentionScratch(const AttentionScratch&) = delete;
  AttentionScratch& operator=(const AttentionScratch&) = delete;
  // Reserves memory for `step` and plans its work; reads its shape, layer and counts. Call it for every layer's step,
  // in layer order, before the threads start; single-threaded.
  void reserve(const LayerStep& step, int threads);
  std::size_t bytes() const;

 private:
  friend void attention_cpu(const LayerStep&, AttentionScratch&, int, int);
  struct Impl;
  Impl* impl_;
};

// Cosines and sines of a slot table's ranks in the layout of its keys: [slots / 16][2 * pairs][16].
std::size_t rank_tile_floats(const AttentionShape& shape, const SlotsView& slots);
void make_rank_tiles(const AttentionShape& shape, const float* rank_row, const SlotsView& slots, float* tiles);

// Each of `threads` threads (at most the number reserved) calls this with its own index; it returns when no unit is
// left for this thread. Callers put a barrier between two calls with one scratch, as ggml does after each node; `out`
// and `weights` are complete after the barrier.
void attention_cpu(const LayerStep& step, AttentionScratch& scratch, int thread, int threads);

}  // namespace palimpsest
