// Evicts the token with the lowest attention weight of the last query, mean over all heads of the layer, which
// therefore keep the same tokens (TOVA, arXiv 2401.06104, section 3.2).
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class Tova final : public Policy {
 public:
  Signals signals() const override { return {.attention_window = AttentionWindow{.queries = 1, .whole_layer = true}}; }
  void score(const HeadView& head, std::span<float> score) const override {
    std::ranges::copy(head.attention, score.begin());
  }
};

}  // namespace

PALIMPSEST_POLICY(tova, Tova, "attention from the last query, mean over the layer's heads (TOVA, arXiv 2401.06104)")

}  // namespace palimpsest
