// What the loss of a token changes in the attention's output: its weight times the size of its value. The weights are
// those of the last 32 queries, pooled as in SnapKV, plus a floor, so that a large value counts where few attended
// (CriticalKV, arXiv 2502.03805, section 3). By options as in the paper, and in kvpress's CriticalKVPress:
//
//   size=projected   the size is the mean over the query group of ||W_o v||_1, not ||v|| (policy/output_projection.h)
//   first=0.5        this share of the budget, the window's tokens included, is chosen by the weights alone: its tokens
//                    rank above all others, in the order of their weights
#include <array>
#include <numeric>
#include <string_view>
#include <vector>

#include "palimpsest/core/score_order.h"
#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/of_budget.h"
#include "palimpsest/policy/output_projection.h"
#include "palimpsest/policy/pooled_window.h"

namespace palimpsest {
namespace {

class Critical final : public PooledWindow, public OfBudget {
  static constexpr float kFloor = 1e-4F;  // of a query's weight, times the window
  static constexpr float kAbove = 1e30F;  // any other score
  enum class Size { kValue, kProjected };

 public:
  Critical() : PooledWindow(WindowPooling::kMax) {}
  Signals signals() const override {
    return {.attention_window = AttentionWindow{.queries = window()},
            .insert_score = InsertScore{},
            .ordered = true,
            .model = size_ == Size::kProjected};
  }
  std::vector<PolicyOption> options() override {
    static constexpr std::array<std::string_view, 2> kSizes = {"value", "projected"};
    std::vector<PolicyOption> all = PooledWindow::options();
    all.push_back(share_option({"first", "SHARE|auto", "share of the budget by the weights alone; auto: 0"}, first_));
    all.push_back(choice_option({"size", "OF", "value: ||v||; projected: ||W_o v||; auto: value"}, size_, kSizes));
    return all;
  }
  void prepare(const PolicyModel& model) override {
    if (size_ == Size::kProjected) projection_ = OutputProjection(model, "critical");
  }
  void score_inserted(const HeadView& head, std::span<float> score) const override {
    if (size_ == Size::kProjected)
      projection_.norms(head.table, head.values, score);
    else
      norm_rows(head.values, score);
  }
  void score(const HeadView& head, std::span<float> score) const override {
    pooled(head.attention, score);
    thread_local std::vector<int> order;
    const std::size_t first = share_of_budget(first_, head.table, score.size());
    by_weight(head, score, first, order);
    const float floor = kFloor * static_cast<float>(window());
    for (std::size_t i = 0; i < first; ++i) score[at(order[i])] = kAbove * (1 + score[at(order[i])]);
    for (std::size_t i = first; i < score.size(); ++i) {
      const std::size_t token = first == 0 ? i : at(order[i]);
      score[token] = (score[token] + floor) * head.insert_score[token];
    }
  }

 private:
  // Puts the `first` tokens of the first stage before the others: the window's, then those of the highest weights, of
  // equal ones the newest.
  void by_weight(const HeadView& head, std::span<const float> weight, std::size_t first,
                 std::vector<int>& order) const {
    if (first == 0) return;
    order.resize(weight.size());
    std::iota(order.begin(), order.end(), 0);
    const Position window_begin = head.position[weight.size() - 1] - window();
    const auto before = [&](int a, int b) {
      const bool a_in = head.position[at(a)] > window_begin, b_in = head.position[at(b)] > window_begin;
      if (a_in != b_in) return a_in;
      if (score_above(weight[at(a)], weight[at(b)])) return true;
      return !score_below(weight[at(a)], weight[at(b)]) && a > b;
    };
    if (first < order.size())
      std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first), order.end(), before);
  }

  double first_ = 0;
  Size size_ = Size::kValue;
  OutputProjection projection_;
};

}  // namespace

PALIMPSEST_POLICY(critical, Critical,
                  "attention from the last 32 queries, pooled, times the size of the value (CriticalKV, arXiv "
                  "2502.03805)")

}  // namespace palimpsest
