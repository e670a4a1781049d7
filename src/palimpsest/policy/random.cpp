// Random scores: a hash of the token's position and the newest position. Drawn again when the newest token changes;
// deterministic for a sequence. per=head: each head draws its own (Random Attention, HF 2609.03430: what one head
// forgets, another has).
#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class Random final : public Policy {
  enum class Per { kText, kHead };

 public:
  Signals signals() const override { return {.own_heads = per_ == Per::kHead}; }
  std::vector<PolicyOption> options() override {
    static constexpr std::array<std::string_view, 2> kPer = {"text", "head"};
    return {choice_option({"per", "WHAT", "one draw for the text, or for each head; auto: text"}, per_, kPer)};
  }
  void score(const HeadView& head, std::span<float> score) const override {
    Position newest = kNoPosition;
    for (std::size_t i = 0; i < score.size(); ++i) newest = std::max(newest, head.position[i]);
    const auto own = static_cast<std::uint64_t>(per_ == Per::kHead ? head.table : 0);
    const auto mine = static_cast<std::uint64_t>(newest) + own * 0xa0761d6478bd642fu;
    for (std::size_t i = 0; i < score.size(); ++i) {
      // Multiply-xorshift; a float holds 24 bits exactly.
      auto x = static_cast<std::uint64_t>(head.position[i]) * 0x9e3779b97f4a7c15u + mine;
      x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
      x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
      score[i] = static_cast<float>(x >> 40);
    }
  }

 private:
  Per per_ = Per::kText;
};

}  // namespace

PALIMPSEST_POLICY(random, Random, "random, drawn again at each eviction: a baseline")

}  // namespace palimpsest
