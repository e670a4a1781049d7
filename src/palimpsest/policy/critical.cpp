// What the loss of a token changes in the attention's output: its weight times the size of its value. The weights are
// those of the last 32 queries, pooled as in SnapKV, plus a floor, so that a large value counts where few attended
// (CriticalKV, arXiv 2502.03805, section 3; its size is ||W_o v||_1, here ||v||, and all of the budget is chosen by the
// product: there, half of it by the weights alone).
#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/pooled_window.h"

namespace palimpsest {
namespace {

class Critical final : public PooledWindow {
  static constexpr float kFloor = 1e-4F;  // of a query's weight, times the window

 public:
  Critical() : PooledWindow(WindowPooling::kMax) {}
  Signals signals() const override {
    return {.attention_window = AttentionWindow{.queries = window()}, .insert_score = InsertScore{}, .ordered = true};
  }
  void score_inserted(const HeadView& head, std::span<float> score) const override { norm_rows(head.values, score); }
  void score(const HeadView& head, std::span<float> score) const override {
    pooled(head.attention, score);
    const float floor = kFloor * static_cast<float>(window());
    for (std::size_t i = 0; i < score.size(); ++i) score[i] = (score[i] + floor) * head.insert_score[i];
  }
};

}  // namespace

PALIMPSEST_POLICY(critical, Critical,
                  "attention from the last 32 queries, pooled, times the norm of the value (after CriticalKV, arXiv "
                  "2502.03805)")

}  // namespace palimpsest
