// Any token is as good as any other: scores are drawn anew in every decision, by a hash of what was drawn before, so
// that the same sequence always loses the same tokens.
#include <bit>
#include <cstdint>

#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class Random final : public Policy {
 public:
  Needs needs() const override { return {}; }
  void score(const HeadView& head, std::span<float> score) const override {
    for (std::size_t i = 0; i < score.size(); ++i) {
      // Two rounds of a multiply-xorshift; 24 bits are what a float holds exactly.
      std::uint32_t x =
          std::bit_cast<std::uint32_t>(score[i]) ^ static_cast<std::uint32_t>(head.position[i]) * 0x9e3779b9u;
      x = (x ^ x >> 16) * 0x85ebca6bu;
      x = (x ^ x >> 13) * 0xc2b2ae35u;
      score[i] = static_cast<float>(1 + (x >> 8));
    }
  }
};

}  // namespace

PALIMPSEST_POLICY(random, Random, "any token, drawn anew each time: what a policy must beat")

}  // namespace palimpsest
