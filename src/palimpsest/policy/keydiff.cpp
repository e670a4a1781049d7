// Keeps keys that differ from the others: score = -cos(k, anchor); anchor: the mean of all unit keys of the head
// (KeyDiff, arXiv 2504.15364, section 3; the authors score keys as they are stored, after rotation). The anchor changes
// with every token, so all keys are read at each decision.
#include <algorithm>
#include <limits>
#include <vector>

#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class KeyDiff final : public Policy {
 public:
  Signals signals() const override { return {.keys = Keys{}}; }
  void score(const HeadView& head, std::span<float> score) const override {
    thread_local std::vector<float> anchor, unit;  // the anchor's sum has the same cosines as the mean
    anchor.assign(static_cast<std::size_t>(head.keys.width), 0);
    unit.resize(score.size());          // 1 / norm; 0: empty slots
    constexpr std::size_t kBlock = 16;  // rows that stay in the L1 cache
    for (std::size_t first = 0; first < unit.size(); first += kBlock) {
      const std::size_t count = std::min(kBlock, unit.size() - first);
      const Rows keys = head.keys.rows(static_cast<int>(first), static_cast<int>(count));
      const auto block = std::span(unit).subspan(first, count);
      norm_rows(keys, block);
      for (std::size_t i = 0; i < count; ++i)
        block[i] =
            head.position[first + i] == kNoPosition ? 0 : 1 / std::max(block[i], std::numeric_limits<float>::min());
      add_scaled_rows(keys, block, anchor);
    }
    const float length = 1 / std::max(norm(anchor), std::numeric_limits<float>::min());
    dot_rows(head.keys, anchor, score);
    for (std::size_t i = 0; i < score.size(); ++i) score[i] = -length * (score[i] * unit[i]);
  }
};

}  // namespace

PALIMPSEST_POLICY(keydiff, KeyDiff, "low similarity to the head's mean key (KeyDiff, arXiv 2504.15364)")

}  // namespace palimpsest
