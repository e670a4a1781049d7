// Persistence of importance: how often a token received at least an even share of a query's attention, among about the
// last 400 queries (Scissorhands, arXiv 2305.17118, section 4, algorithm 2). There a window of 400 queries counts how
// often it was less; here older queries fade, by a factor of 1 - 1/400 each, so that one number a token is enough.
// Of a chunk of a prompt, whose weights come as one sum, its mean query counts.
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
