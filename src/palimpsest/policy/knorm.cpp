// Inverse key norm: score = -||k||_2. Keys of low norm receive much attention (Devoto et al., arXiv 2406.11430, section
// 3). Rotary positions do not change a norm. Its authors leave the first two layers whole; others do not, nor do we: a
// split file can.
#include "palimpsest/policy/norm.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class Knorm final : public Policy {
 public:
  Signals signals() const override { return {.keys = Keys{}, .score_on_insert = true}; }
  void score(const HeadView& head, std::span<float> score) const override {
    for (std::size_t i = 0; i < score.size(); ++i) score[i] = -norm(head.keys[static_cast<int>(i)]);
  }
};

}  // namespace

PALIMPSEST_POLICY(knorm, Knorm, "low key norm (inverse key norm, arXiv 2406.11430)")

}  // namespace palimpsest
