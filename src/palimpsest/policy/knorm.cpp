// Inverse key norm: score = -||k||_2. Keys of low norm receive much attention (Devoto et al., arXiv 2406.11430, section
// 3). RoPE does not change a norm. The authors do not evict in the first two layers; a split file can do the same.
#include "palimpsest/core/vectors.h"
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
