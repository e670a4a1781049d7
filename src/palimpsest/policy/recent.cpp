// Keeps the newest tokens. With protected sinks this is StreamingLLM (arXiv 2309.17453): sinks + window.
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class Recent final : public Policy {
 public:
  Signals signals() const override { return {}; }
  // A float is exact below 2^24 and monotonic above; ties are broken by age, so the order is exact.
  void score(const HeadView& head, std::span<float> score) const override {
    // Relative positions have the order of positions; saturated ones tie.
    if (const std::int32_t* const relative = head.position.relative(); relative != nullptr)
      for (std::size_t i = 0; i < score.size(); ++i) score[i] = static_cast<float>(relative[i]);
    else
      for (std::size_t i = 0; i < score.size(); ++i) score[i] = static_cast<float>(head.position[i]);
  }
};

}  // namespace

PALIMPSEST_POLICY(recent, Recent, "the newest tokens (StreamingLLM, arXiv 2309.17453, with sinks protected)")

}  // namespace palimpsest
