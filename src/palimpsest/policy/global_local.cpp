// What all queries looked at, or the last ones did, brought to one scale, each token with its neighbours (EMS, arXiv
// 2412.08521, equation 2):
//
//   score = mean over 7 neighbours of max(s_glo * mean(s_loc) / mean(s_glo), s_loc)
//
// s_glo: the attention of every query so far. s_loc: that of the last 32, while decoding of the 32 before and the
// current ones, up to 32. The window's own tokens are to be protected (methods `global-local` and `ems`: recent=32).
#include <vector>

#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/pool.h"

namespace palimpsest {
namespace {

class GlobalLocal final : public Policy {
 public:
  Signals signals() const override {
    return {.attention_sum = AttentionSum{},
            .attention_window = AttentionWindow{.queries = 32, .past = true},
            .ordered = true};
  }
  void score(const HeadView& head, std::span<float> score) const override {
    thread_local std::vector<float> both;
    double local = 0, global = 0;
    for (std::size_t i = 0; i < score.size(); ++i) {
      local += head.attention[i];
      global += head.attention_sum[i];
    }
    const float scale = global > 0 ? static_cast<float>(local / global) : 0;
    both.resize(score.size());
    for (std::size_t i = 0; i < score.size(); ++i) both[i] = std::max(head.attention_sum[i] * scale, head.attention[i]);
    mean_pool_7(both, score);
  }
};

}  // namespace

PALIMPSEST_POLICY(global_local, GlobalLocal,
                  "attention from all queries and from the last 32, mean-pooled (EMS, arXiv 2412.08521)")

}  // namespace palimpsest
