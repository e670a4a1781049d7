// Attention from the last 32 queries, summed, then max-pooled over 7 tokens (SnapKV, arXiv 2404.14469, section 4;
// window and kernel of its LongBench configurations; other implementations average: pooling=avg). As in the authors'
// code the window's own tokens are no neighbours of those before it. Protect them (method `snapkv`: recent=32).
#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/pool.h"

namespace palimpsest {
namespace {

class SnapKv final : public Policy {
 public:
  std::vector<std::string_view> option_names() const override { return {"window", "pooling", "kernel"}; }
  void configure(const PolicyOptions& options) override {
    if (options.window > 0) window_ = options.window;
    if (options.kernel > 0) kernel_ = options.kernel;
    if (options.pooling != PolicyOptions::Pooling::kAuto) pooling_ = options.pooling;
  }
  Signals signals() const override {
    return {.attention_window = AttentionWindow{.queries = window_}, .ordered = true};
  }
  void score(const HeadView& head, std::span<float> score) const override {
    std::size_t before = score.size();  // tokens before the window
    while (before > 0 && head.position[before - 1] > head.position[score.size() - 1] - window_) --before;
    pool(pooling_, kernel_, head.attention.first(before), score.first(before));
    pool(pooling_, kernel_, head.attention.subspan(before), score.subspan(before));
  }

 private:
  int window_ = 32, kernel_ = 7;
  PolicyOptions::Pooling pooling_ = PolicyOptions::Pooling::kMax;
};

}  // namespace

PALIMPSEST_POLICY(snapkv, SnapKv, "attention from the last 32 queries, max-pooled (SnapKV, arXiv 2404.14469)")

}  // namespace palimpsest
