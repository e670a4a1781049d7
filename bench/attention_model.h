// The attention of a whole model without the model: pages, slot tables and activations of every layer, for timing.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/team.h"
#include "palimpsest/attention/cpu.h"
#include "palimpsest/cache/merged.h"
#include "palimpsest/cache/pages.h"

namespace palimpsest::bench {

// How keys get their positions: rotated when written; late with one slot table for all heads, or one for each; from
// rotated halves; into a copy.
enum class Way { kOnWrite, kOnRead, kLatePerHead, kCachedHalf, kRecompute };

struct AttentionModelOptions {
  int page_size = 64, slots = 8192, new_tokens = 1, batch = 1;
  int head_dim = 64, kv_heads = 8, group = 4, layers = 16;
  CacheType type = CacheType::kF16;
  Way way = Way::kOnWrite;
  int merged = 0;              // tokens in the slots of others, of each head
  bool own_positions = false;  // of merged tokens
  double skew = 1;             // of their classes: 1: all slots alike; more: some have many
  int late = INT32_MAX;        // weights are of so many of the last queries, and their sums over all are wanted, too
};

// Sequences whose last `new_tokens` are inserted and attend. Slots have random ranks, as after many evictions.
class AttentionModel {
 public:
  explicit AttentionModel(const AttentionModelOptions& options);
  ~AttentionModel();

  // One step through all layers; weights of each head go to the same few arrays, as if read at once.
  void run(Team& team, bool weights);
  double cache_bytes() const;
  // Multiply-adds that causality leaves, times two.
  double flops() const;

 private:
  AttentionModelOptions o_;
  LayerView layout_;
  PagePool pool_;
  std::vector<PageId> page_;
  std::vector<std::int32_t> when_, rank_;
  std::vector<int> inserted_;
  MergedTokens merged_{0};
  MergedView merged_view_;
  SlotsView slots_;
  std::vector<HeadPages> head_;
  std::vector<LayerView> layer_;  // [layers][batch]
  std::vector<StepTokens> tokens_;
  std::vector<float> rows_, q_, k_, v_, out_, rank_tiles_;
  std::vector<const float*> rank_tiles_of_;
  std::vector<std::vector<float>> weights_, sums_;
  std::vector<float*> weights_of_, sums_of_;
  AttentionStep step_;
  AttentionScratch scratch_;
};

}  // namespace palimpsest::bench
