// What one eviction does: which slots are given up, per slot table. Made by `evict`, carried out by Cache::apply.
#pragma once

#include <vector>

namespace palimpsest {

struct Plan {
  // drop[t]: victims of slot table t (one table serves all heads of a sequence whose decisions are the same),
  // oldest first, no slot twice. The k-th new token takes the k-th victim's slot if the mechanism is in-place, or block
  // and the victims are all tokens of full pages.
  std::vector<std::vector<int>> drop;

  bool empty() const {
    for (const auto& victims : drop)
      if (!victims.empty()) return false;
    return true;
  }
  void clear() {  // keeps the memory: a plan is made in every step
    for (auto& victims : drop) victims.clear();
  }
};

}  // namespace palimpsest
