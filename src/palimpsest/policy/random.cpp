// Any token is as good as any other: scores are drawn anew whenever the newest token is another, by a hash of both
// positions, so that the same sequence always loses the same tokens.
#include <algorithm>
#include <cstdint>

#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class Random final : public Policy {
 public:
  Signals signals() const override { return {}; }
  void score(const HeadView& head, std::span<float> score) const override {
    Position newest = kNoPosition;
    for (std::size_t i = 0; i < score.size(); ++i) newest = std::max(newest, head.position[i]);
    for (std::size_t i = 0; i < score.size(); ++i) {
      // Rounds of a multiply-xorshift; 24 bits are what a float holds exactly.
      auto x = static_cast<std::uint64_t>(head.position[i]) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(newest);
      x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
      x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
      score[i] = static_cast<float>(x >> 40);
    }
  }
};

}  // namespace

PALIMPSEST_POLICY(random, Random, "random, drawn again at each eviction: a baseline")

}  // namespace palimpsest
