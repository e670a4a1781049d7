// The victims of one eviction, per slot table. Made by `evict`, executed by Cache::apply.
#pragma once

#include <vector>

namespace palimpsest {

struct Victims {
  // drop[t]: victims of slot table t, oldest first, no slot twice. The k-th new token takes the k-th victim's slot if
  // the mechanism is in-place, or block and the victims are all tokens of full pages.
  std::vector<std::vector<int>> drop;

  bool empty() const {
    for (const auto& victims : drop)
      if (!victims.empty()) return false;
    return true;
  }
  void clear() {  // keeps the memory for the next step
    for (auto& victims : drop) victims.clear();
  }
};

}  // namespace palimpsest
