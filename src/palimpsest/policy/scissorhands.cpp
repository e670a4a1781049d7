// Persistence of importance: how often a token's weight was at least the mean weight of a query, among about the last
// 400 queries (Scissorhands, arXiv 2305.17118, section 4, algorithm 2). The paper counts in a window of 400 queries how
// often it was less; here older queries decay by a factor of 1 - 1/400 each, which needs one number per token. For a
// chunk of a prompt, whose weights are one sum, the mean over its queries counts.
#include <cmath>

#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class Scissorhands final : public Policy {
 public:
  Signals signals() const override { return {.attention_sum = AttentionSum{}}; }
  void score(const HeadView& head, std::span<float> score) const override {
    const auto queries = static_cast<float>(head.inserted);
    const auto occupied = std::ranges::count_if(head.position, [](Position p) { return p != kNoPosition; });
    const float share = queries / static_cast<float>(occupied), fade = std::pow(1 - 1 / 400.0F, queries);
    for (std::size_t i = 0; i < score.size(); ++i)
      score[i] = score[i] * fade + (head.attention[i] >= share ? queries : 0);
  }
};

}  // namespace

PALIMPSEST_POLICY(scissorhands, Scissorhands,
                  "how often its attention weight exceeded the mean recently (after Scissorhands, arXiv 2305.17118)")

}  // namespace palimpsest
