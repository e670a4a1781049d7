// Keys and values that the cache type cannot hold: above its largest number, or not finite. Zeros are stored instead,
// which attention would silently use, so a step with one fails its sequence, unless it is of a draft: earlier tokens do
// not see it. Kernels record it (threads must not throw); the caller of the step throws.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

struct Misfit {
  int sequence = 0, layer = 0, kv_head = 0;
  bool value = false;   // a value; else a key
  float magnitude = 0;  // max |x| of the row; NaN if it has a NaN
  int token = 0;        // of a step with drafts: index of the token; else 0
};

// The misfits of one step. report() may be called from any thread, the others between steps.
class Misfits {
 public:
  void clear() {
    if (!any()) return;
    first_.clear();
    any_ = false;
  }
  void report(const Misfit& misfit);
  bool any() const { return any_.load(std::memory_order_relaxed); }
  // The sequence's first one by token, layer, head, and keys before values: independent of the threads' order.
  std::optional<Misfit> of(int sequence) const;

 private:
  std::mutex mutex_;
  std::atomic<bool> any_ = false;
  std::vector<Misfit> first_;  // at most one per sequence
};

}  // namespace palimpsest
