// Pages, slot tables and activations of all layers of a model, to time attention alone.
#pragma once

#include <cstdint>
#include <vector>

#include "palimpsest/attention/cpu.h"
#include "palimpsest/cache/merged.h"
#include "palimpsest/cache/pages.h"
#include "research/speed/team.h"

namespace palimpsest::bench {

// How keys are rotated: on write; on read with one slot table for all heads, or with one per head; on read with stored
// rotate_half(k); into a rotated copy.
enum class KeyRotation { kOnWrite, kOnRead, kOnReadPerHead, kCachedHalf, kMaterialized };

struct AttentionModelOptions {
  int page_size = 64, slots = 8192, new_tokens = 1, batch = 1;
  int head_dim = 64, kv_heads = 8, group = 4, layers = 16;
  CacheType type = CacheType::kF16;
  KeyRotation rotation = KeyRotation::kOnWrite;
  int merged = 0;              // merged tokens per head
  bool own_positions = false;  // merged tokens keep their own positions
  double skew = 1;             // of cluster sizes: 1: uniform; larger: a few large clusters
  int weights_queries =
      INT32_MAX;  // weights cover only this many last queries; then sums over all queries are also computed
};

// Sequences in which the last `new_tokens` tokens are inserted and attend. Slots have random ranks, as after many
// evictions.
class AttentionModel {
 public:
  explicit AttentionModel(const AttentionModelOptions& options);
  ~AttentionModel();

  // One step through all layers. All layers write their weights to the same arrays, as if they were read immediately.
  void run(Team& team, bool weights);
  double cache_bytes() const;
  // Floating-point operations under the causal mask: multiply-adds times two.
  double flops() const;

 private:
  AttentionModelOptions o_;
  LayerView layout_;
  PagePool pool_;
  std::vector<PageId> page_;
  std::vector<std::int32_t> relative_, rank_;
  std::vector<int> inserted_;
  MergedTokens merged_{0};
  MergedView merged_view_;
  SlotsView slots_;
  std::vector<HeadPages> head_;
  std::vector<LayerView> layer_;  // [layers][batch]
  std::vector<SequenceTokens> tokens_;
  std::vector<float> rows_, q_, k_, v_, out_, rank_tiles_;
  std::vector<const float*> rank_tiles_of_;
  std::vector<std::vector<float>> weights_, sums_;
  std::vector<float*> weights_of_, sums_of_;
  LayerStep step_;
  AttentionScratch scratch_;
};

}  // namespace palimpsest::bench
