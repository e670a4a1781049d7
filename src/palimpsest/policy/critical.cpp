// What the loss of a token changes in the attention's output: its weight times the size of its value. The weights are
// those of the last 32 queries, pooled as in SnapKV, plus a floor, so that a large value counts where few attended
// (CriticalKV, arXiv 2502.03805, section 3; its size is ||W_o v||_1, here ||v||, and all of the budget is chosen by the
// product: there, half of it by the weights alone).
#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/pool.h"

namespace palimpsest {
namespace {

class Critical final : public Policy {
  static constexpr float kFloor = 1e-4F;  // of a query's weight, times the window

 public:
  std::vector<std::string_view> option_names() const override { return {"window", "pooling", "kernel"}; }
  void configure(const PolicyOptions& options) override {
    if (options.window > 0) window_ = options.window;
    if (options.kernel > 0) kernel_ = options.kernel;
    if (options.pooling != PolicyOptions::Pooling::kAuto) pooling_ = options.pooling;
  }
  Signals signals() const override {
    return {.attention_window = AttentionWindow{.queries = window_}, .insert_score = InsertScore{}, .ordered = true};
  }
  void score_inserted(const HeadView& head, std::span<float> score) const override { norm_rows(head.values, score); }
  void score(const HeadView& head, std::span<float> score) const override {
    pool(pooling_, kernel_, head.attention, score);
    const float least = kFloor * static_cast<float>(window_);
    for (std::size_t i = 0; i < score.size(); ++i) score[i] = (score[i] + least) * head.insert_score[i];
  }

 private:
  int window_ = 32, kernel_ = 7;
  PolicyOptions::Pooling pooling_ = PolicyOptions::Pooling::kMax;
};

}  // namespace

PALIMPSEST_POLICY(critical, Critical,
                  "attention from the last 32 queries, pooled, times the norm of the value (after CriticalKV, arXiv "
                  "2502.03805)")

}  // namespace palimpsest
