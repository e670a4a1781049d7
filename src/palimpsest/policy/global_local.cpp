// The larger of global and local attention, at one scale, mean-pooled over neighbours (EMS, arXiv 2412.08521, equation
// 2):
//
//   score = mean over 7 neighbours of max(s_glo * mean(s_loc) / mean(s_glo), s_loc)
//
// s_glo: attention from all queries so far. s_loc: from the prompt's last 32; in decode from the current window of up
// to 31 and the past one of 32, which the current one replaces when it is full. Protect the window's own tokens
// (methods `global-local` and `ems`: recent=32). score=global, local: one of the two alone (the paper's table 4).
#include <array>
#include <vector>

#include "palimpsest/policy/pooled_window.h"

namespace palimpsest {
namespace {

class GlobalLocal final : public PooledWindow {
 public:
  GlobalLocal() : PooledWindow(WindowPooling::kAverage) {}
  std::vector<PolicyOption> options() override {
    static constexpr std::array<std::string_view, 3> kScores = {"global", "local", "both"};
    std::vector<PolicyOption> all = PooledWindow::options();
    all.push_back(choice_option({"score", "WHICH", "attention from all queries, the last (local), or both (auto)"}, by_,
                                kScores));
    return all;
  }
  Signals signals() const override {
    return {.attention_sum = AttentionSum{},
            .attention_window = AttentionWindow{.queries = window(), .past = true},
            .ordered = true};
  }
  void score(const HeadView& head, std::span<float> score) const override {
    if (by_ == Score::kGlobal) return pooled(head.attention_sum, score);
    if (by_ == Score::kLocal) return pooled(head.attention, score);
    thread_local std::vector<float> both;
    double local = 0, global = 0;
    for (std::size_t i = 0; i < score.size(); ++i) {
      local += head.attention[i];
      global += head.attention_sum[i];
    }
    const float scale = global > 0 ? static_cast<float>(local / global) : 0;
    both.resize(score.size());
    for (std::size_t i = 0; i < score.size(); ++i) both[i] = std::max(head.attention_sum[i] * scale, head.attention[i]);
    pooled(both, score);
  }

 private:
  enum class Score { kGlobal, kLocal, kBoth };
  Score by_ = Score::kBoth;
};

}  // namespace

PALIMPSEST_POLICY(global_local, GlobalLocal,
                  "attention from all queries and from the last 32, mean-pooled (EMS, arXiv 2412.08521)")

}  // namespace palimpsest
