// Max attention weight while the model repeats the prompt, over the query group and all queries of the repetition
// (KVzip, arXiv 2505.23416, section 3). Later tokens have score 0.
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class KvZip final : public Policy {
 public:
  Signals signals() const override { return {.attention_max = AttentionMax{}, .repeat = true}; }
  void score(const HeadView& head, std::span<float> score) const override {
    for (std::size_t i = 0; i < score.size(); ++i) score[i] = std::max(score[i], head.attention[i]);
  }
};

}  // namespace

PALIMPSEST_POLICY(kvzip, KvZip, "max attention while the model repeats the prompt (KVzip, arXiv 2505.23416)")

}  // namespace palimpsest
