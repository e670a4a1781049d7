// The larger of global and local attention, at one scale, mean-pooled over neighbours (EMS, arXiv 2412.08521, equation
// 2):
//
//   score = mean over 7 neighbours of max(s_glo * mean(s_loc) / mean(s_glo), s_loc)
//
// s_glo: attention from all queries so far. s_loc: from the prompt's last 32; in decode from the current window of up
// to 31 and the past one of 32, which the current one replaces when it is full. Protect the window's own tokens
// (methods `global-local` and `ems`: recent=32). score=global, local: one of the two alone (the paper's table 4).
#include <vector>

#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/pool.h"

namespace palimpsest {
namespace {

class GlobalLocal final : public Policy {
 public:
  using Score = PolicyOptions::Score;

  std::vector<std::string_view> option_names() const override { return {"score", "window", "pooling", "kernel"}; }
  void configure(const PolicyOptions& options) override {
    if (options.score != Score::kAuto) by_ = options.score;
    if (options.window > 0) window_ = options.window;
    if (options.kernel > 0) kernel_ = options.kernel;
    if (options.pooling != PolicyOptions::Pooling::kAuto) pooling_ = options.pooling;
  }
  Signals signals() const override {
    return {.attention_sum = AttentionSum{},
            .attention_window = AttentionWindow{.queries = window_, .past = true},
            .ordered = true};
  }
  void score(const HeadView& head, std::span<float> score) const override {
    if (by_ == Score::kGlobal) return pool(pooling_, kernel_, head.attention_sum, score);
    if (by_ == Score::kLocal) return pool(pooling_, kernel_, head.attention, score);
    thread_local std::vector<float> both;
    double local = 0, global = 0;
    for (std::size_t i = 0; i < score.size(); ++i) {
      local += head.attention[i];
      global += head.attention_sum[i];
    }
    const float scale = global > 0 ? static_cast<float>(local / global) : 0;
    both.resize(score.size());
    for (std::size_t i = 0; i < score.size(); ++i) both[i] = std::max(head.attention_sum[i] * scale, head.attention[i]);
    pool(pooling_, kernel_, both, score);
  }

 private:
  Score by_ = Score::kBoth;
  int window_ = 32, kernel_ = 7;
  PolicyOptions::Pooling pooling_ = PolicyOptions::Pooling::kAverage;
};

}  // namespace

PALIMPSEST_POLICY(global_local, GlobalLocal,
                  "attention from all queries and from the last 32, mean-pooled (EMS, arXiv 2412.08521)")

}  // namespace palimpsest
