// Protects the values with the largest range, and draws the other tokens at random, each with a chance in proportion to
// its attention (VaSE, arXiv 2606.03928, its variant AttnV: reasoning models write in loops when large values are lost,
// and heads that keep different tokens remember more together).
//
//   range_i = max(v_i) - min(v_i)      large * budget tokens of the largest range rank above all others
//   others: w_i / e_i                  w: attention from the last 32 queries, max-pooled over 7 tokens, plus 1e-4 of a
//                                      query's weight; e: from the exponential distribution
//
// The k largest of w_i / e_i are k draws without replacement with chances w_i. e_i is a hash of the head, the token's
// position and the newest position: drawn again at each eviction, the same in each run of a text. large=0.5: the
// authors' scripts reserve 256 of 512 tokens.
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "palimpsest/core/score_order.h"
#include "palimpsest/policy/of_budget.h"
#include "palimpsest/policy/pool.h"

namespace palimpsest {
namespace {

class Vase final : public Policy, public OfBudget {
  static constexpr int kWindow = 32, kKernel = 7;
  static constexpr float kFloor = 1e-4F * kWindow;
  static constexpr float kAbove = 1e30F;  // any other score: a draw is at most 33 / 2^-25

 public:
  Signals signals() const override {
    return {.attention_window = AttentionWindow{.queries = kWindow}, .insert_score = InsertScore{}, .ordered = true};
  }
  std::vector<PolicyOption> options() override {
    return {share_option({"large", "SHARE|auto", "share of the budget for the largest values; auto: 0.5"}, large_)};
  }
  void score_inserted(const HeadView& head, std::span<float> score) const override {
    for (std::size_t i = 0; i < score.size(); ++i) {
      const auto [min, max] = std::ranges::minmax(head.values[static_cast<int>(i)]);
      score[i] = max - min;
    }
  }
  void score(const HeadView& head, std::span<float> score) const override {
    max_pool(kKernel, head.attention, score);
    const auto newest = static_cast<std::uint64_t>(head.position[score.size() - 1]);
    for (std::size_t i = 0; i < score.size(); ++i)
      score[i] = (score[i] + kFloor) / waiting_time(head.table, static_cast<std::uint64_t>(head.position[i]), newest);
    thread_local std::vector<int> order;
    const std::size_t large = share_of_budget(large_, head.table, score.size());
    if (large == 0) return;
    order.resize(score.size());
    std::iota(order.begin(), order.end(), 0);
    const auto before = [&](int a, int b) {
      const float of_a = head.insert_score[at(a)], of_b = head.insert_score[at(b)];
      if (score_above(of_a, of_b)) return true;
      return !score_below(of_a, of_b) && a > b;
    };
    if (large < order.size())
      std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(large), order.end(), before);
    for (std::size_t i = 0; i < large; ++i) score[at(order[i])] = kAbove * (1 + head.insert_score[at(order[i])]);
  }

 private:
  static float waiting_time(int table, std::uint64_t position, std::uint64_t newest) {
    // Multiply-xorshift, as in policy random. The middle of one of 2^24 parts of (0, 1).
    auto x = position * 0x9e3779b97f4a7c15u + newest + static_cast<std::uint64_t>(table) * 0xa0761d6478bd642fu;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    const double uniform = (static_cast<double>(x >> 40) + 0.5) / (1 << 24);
    return static_cast<float>(-std::log(uniform));
  }

  double large_ = 0.5;
};

}  // namespace

PALIMPSEST_POLICY(vase, Vase,
                  "the values of the largest range, and draws by attention, per head (VaSE, arXiv 2606.03928)")

}  // namespace palimpsest
