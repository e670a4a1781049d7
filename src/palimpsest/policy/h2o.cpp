// Heavy hitters: score_j = sum over all queries so far of the attention weight of token j (H2O, arXiv 2306.14048,
// section 4). Half of the budget is for the newest tokens (method `h2o`: recent=half).
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class H2o final : public Policy {
 public:
  Signals signals() const override { return {.attention_sum = AttentionSum{}}; }
  std::optional<float> fading() const override { return 1.0F; }
  void score(const HeadView& head, std::span<float> score) const override {
    for (std::size_t i = 0; i < score.size(); ++i) score[i] += head.attention[i];
  }
};

}  // namespace

PALIMPSEST_POLICY(h2o, H2o, "accumulated attention weight: heavy hitters (H2O, arXiv 2306.14048)")

}  // namespace palimpsest
