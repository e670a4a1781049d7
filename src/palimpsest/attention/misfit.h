// Keys and values that their cache type cannot hold: beyond its largest number, or no numbers. What is stored of them
// is infinite or NaN, and attention would go on with it silently, so a step that meets one is a failure of its
// sequence. Kernels record it (threads must not throw); who ran the step throws.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

struct Misfit {
  int sequence = 0, layer = 0, kv_head = 0;
  bool value = false;   // of a value; else of a key
  float magnitude = 0;  // the largest of the row; NaN: one is no number
};

// Of one step. report() from any thread, the others between steps.
class Misfits {
 public:
  void clear() {
    if (!any()) return;
    first_.clear();
    any_ = false;
  }
  void report(const Misfit& misfit);
  bool any() const { return any_.load(std::memory_order_relaxed); }
  // The sequence's first, in the order of layers, heads, and keys before values: whatever the threads' order.
  std::optional<Misfit> of(int sequence) const;

 private:
  std::mutex mutex_;
  std::atomic<bool> any_ = false;
  std::vector<Misfit> first_;  // one a sequence
};

}  // namespace palimpsest
