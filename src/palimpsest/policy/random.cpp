// Random scores: a hash of the token's position and the newest position. Drawn again when the newest token changes;
// deterministic for a sequence.
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
      // Multiply-xorshift; a float holds 24 bits exactly.
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
