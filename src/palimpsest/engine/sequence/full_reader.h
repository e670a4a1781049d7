// Reads a text beside any method, for measurements of a model: the cache keeps all tokens, those outside of layers'
// windows too, and all heads share its one slot table.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/graph/decoder.h"

namespace palimpsest {

// Memory for the weights of a step: layers run one after the other, so that they share rows.
class WeightRows {
 public:
  explicit WeightRows(const HeadGeometry& geometry);
  float* const* of_step(std::size_t slots);  // SequenceStep::weights
  const std::vector<float>& of(int head) const { return rows_[at(geometry_.kv_head_of(head))]; }

 private:
  const HeadGeometry& geometry_;
  std::vector<std::vector<float>> rows_;  // [max KV heads of a layer][slots], of the current layer
  std::vector<float*> pointers_;          // [heads]
};

class FullReader {
 public:
  // `task`: what it is for, "fitting is supported". Throws Error unless the model runs on the CPU's fast path.
  FullReader(Decoder& decoder, std::string_view task);
  static void check(const Decoder& decoder, std::string_view task);

  // One step. `request` sets what is requested of it; the tokens have their slots then.
  void read(std::span<const TokenId> tokens, const std::function<void(SequenceStep&)>& request);
  // Forgets the newest tokens.
  void undo(std::size_t tokens) { cache_.undo(static_cast<int>(tokens)); }

  const Cache& cache() const { return cache_; }
  std::size_t slots() const { return cache_.table(0).score().size(); }  // a head's weights in the next step

 private:
  Decoder& decoder_;
  Cache cache_;
  AttentionRule rule_;
};

}  // namespace palimpsest
