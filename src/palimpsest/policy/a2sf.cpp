// Heavy hitters that fade: score_j = sum over all queries so far of f^(queries since) * attention weight of token j
// (A2SF, accumulative attention with a forgetting factor, arXiv 2407.20485, section 3). Old tokens were seen by more
// queries than new ones; forgetting makes their sums comparable. The paper tunes f per task; here a weight counts half
// after 69 queries. The weights of a step count alike.
#include <cmath>

#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

constexpr float kForgetting = 0.99F;

class A2sf final : public Policy {
 public:
  Signals signals() const override { return {.attention_sum = AttentionSum{}}; }
  std::optional<float> fading() const override { return kForgetting; }
  void score(const HeadView& head, std::span<float> score) const override {
    const float kept = std::pow(kForgetting, static_cast<float>(head.inserted));
    for (std::size_t i = 0; i < score.size(); ++i) score[i] = kept * score[i] + head.attention[i];
  }
};

}  // namespace

PALIMPSEST_POLICY(a2sf, A2sf, "accumulated attention weight with a forgetting factor (A2SF, arXiv 2407.20485)")

}  // namespace palimpsest
