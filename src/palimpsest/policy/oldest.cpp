// Evicts the oldest token, as `recent` does, and accumulates attention weights, which join=next needs (method `cam`).
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class Oldest final : public Policy {
 public:
  Signals signals() const override {
    return {.attention_sum = AttentionSum{}, .attention_window = AttentionWindow{.queries = 1}, .ordered = true};
  }
  void score(const HeadView&, std::span<float> score) const override {
    for (std::size_t i = 0; i < score.size(); ++i) score[i] = static_cast<float>(i);
  }
};

}  // namespace

PALIMPSEST_POLICY(oldest, Oldest, "evicts the oldest token; accumulates attention weights for merging (CaM)")

}  // namespace palimpsest
