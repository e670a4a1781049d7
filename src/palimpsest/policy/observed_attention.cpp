// A token's mean attention weight over the queries after it, averaged over the query group: H2O's score (arXiv
// 2306.14048) without its preference for old tokens. kvpress's ObservedAttentionPress.
#include <algorithm>

#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class ObservedAttention final : public Policy {
 public:
  Signals signals() const override { return {.attention_sum = AttentionSum{}}; }
  void score(const HeadView& head, std::span<float> score) const override {
    Position next = 0;
    for (std::size_t i = 0; i < score.size(); ++i) next = std::max(next, head.position[i] + 1);
    for (std::size_t i = 0; i < score.size(); ++i) {
      if (head.position[i] == kNoPosition) continue;
      // The token's own query counts.
      const auto now = static_cast<float>(next - head.position[i]);
      const float before = std::max(0.0F, now - static_cast<float>(head.inserted));
      score[i] = (score[i] * before + head.attention[i]) / now;
    }
  }
};

}  // namespace

PALIMPSEST_POLICY(observed_attention, ObservedAttention,
                  "mean attention from the queries after the token (kvpress's ObservedAttentionPress)")

}  // namespace palimpsest
