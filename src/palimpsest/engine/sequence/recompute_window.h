// A method without a cache (the baseline window-recompute): in every step the sinks and the newest tokens are read
// again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/evict/method.h"

namespace palimpsest {

class RecomputeWindow {
 public:
  explicit RecomputeWindow(const Method& method) : budget_(method.cache ? 0 : method.budget), sinks_(method.sinks()) {}

  // The window with `tokens` at its end: what the step reads. Valid, and without effect, until keep().
  std::span<const TokenId> with(std::span<const TokenId> tokens) {
    next_ = tokens_;
    next_.insert(next_.end(), tokens.begin(), tokens.end());
    if (std::ssize(next_) > budget_) next_.erase(next_.begin() + sinks_, next_.end() - (budget_ - sinks_));
    return next_;
  }
  void keep() { tokens_.swap(next_); }
  std::size_t free() const { return static_cast<std::size_t>(budget_) - tokens_.size(); }
  void clear() { tokens_.clear(); }

  void save(ByteWriter& out) const { out.array(std::span<const TokenId>(tokens_)); }
  void load(ByteReader& in) {
    tokens_ = in.array<TokenId>();
    in.require(std::ssize(tokens_) <= budget_, "a window that the method has not");
  }

 private:
  std::ptrdiff_t budget_, sinks_;
  std::vector<TokenId> tokens_, next_;
};

}  // namespace palimpsest
