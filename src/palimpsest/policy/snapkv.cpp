// Attention from the last 32 queries, summed, then max-pooled over 7 tokens (SnapKV, arXiv 2404.14469, section 4;
// window and kernel of its LongBench configurations; other implementations average: pooling=avg). As in the authors'
// code the window's own tokens are no neighbours of those before it. Protect them (method `snapkv`: recent=32).
#include "palimpsest/policy/pooled_window.h"

namespace palimpsest {
namespace {

class SnapKv final : public PooledWindow {
 public:
  SnapKv() : PooledWindow(WindowPooling::kMax) {}
  Signals signals() const override {
    return {.attention_window = AttentionWindow{.queries = window()}, .ordered = true};
  }
  void score(const HeadView& head, std::span<float> score) const override {
    std::size_t before = score.size();  // tokens before the window
    while (before > 0 && head.position[before - 1] > head.position[score.size() - 1] - window()) --before;
    pooled(head.attention.first(before), score.first(before));
    pooled(head.attention.subspan(before), score.subspan(before));
  }
};

}  // namespace

PALIMPSEST_POLICY(snapkv, SnapKv, "attention from the last 32 queries, max-pooled (SnapKV, arXiv 2404.14469)")

}  // namespace palimpsest
