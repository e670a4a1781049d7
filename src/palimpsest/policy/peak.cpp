// The largest attention weight that a token ever received, over all queries and the heads of the query group. A sum or
// a mean forgets a token that one query needed and the others did not; the maximum bounds what its loss can cost a
// query (DefensiveKV, arXiv 2510.13334, section 3: the worst case instead of the mean; there over the last queries).
#include <algorithm>

#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class Peak final : public Policy {
 public:
  Signals signals() const override { return {.attention_max = AttentionMax{}}; }
  void score(const HeadView& head, std::span<float> score) const override {
    for (std::size_t i = 0; i < score.size(); ++i) score[i] = std::max(score[i], head.attention[i]);
  }
};

}  // namespace

PALIMPSEST_POLICY(peak, Peak, "largest attention weight received: the worst case (after DefensiveKV, arXiv 2510.13334)")

}  // namespace palimpsest
