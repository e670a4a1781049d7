// Reads a text beside any method, for measurements of a model: the cache keeps all tokens, those outside of layers'
// windows too, and all heads share its one slot table.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "palimpsest/cache/cache.h"
#include "palimpsest/graph/decoder.h"

namespace palimpsest {

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
