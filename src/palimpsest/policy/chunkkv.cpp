// The mean attention of chunks of 10 tokens, from the last 32 queries, over all heads of the layer: tokens stay or go
// with their neighbours (ChunkKV, arXiv 2502.00299; kvpress's ChunkKVPress around its SnapKV: window=64, kernel=5,
// chunk=20). The tokens after the last whole chunk are one chunk.
#include <algorithm>
#include <numeric>
#include <vector>

#include "palimpsest/policy/pooled_window.h"

namespace palimpsest {
namespace {

class ChunkKv final : public PooledWindow {
 public:
  ChunkKv() : PooledWindow(WindowPooling::kAverage) {}
  Signals signals() const override {
    return {.attention_window = AttentionWindow{.queries = window(), .whole_layer = true}, .ordered = true};
  }
  std::vector<PolicyOption> options() override {
    std::vector<PolicyOption> all = PooledWindow::options();
    all.push_back(count_option({"chunk", "TOKENS|auto", "tokens that stay or go together; auto: 10"}, chunk_, 1 << 20));
    return all;
  }
  void score(const HeadView& head, std::span<float> score) const override {
    pooled(head.attention, score);
    const auto chunk = static_cast<std::size_t>(chunk_);
    for (std::size_t first = 0; first < score.size(); first += chunk) {
      const auto mine = score.subspan(first, std::min(chunk, score.size() - first));
      const float mean = std::accumulate(mine.begin(), mine.end(), 0.0F) / static_cast<float>(mine.size());
      std::ranges::fill(mine, mean);
    }
  }

 private:
  int chunk_ = 10;
};

}  // namespace

PALIMPSEST_POLICY(chunkkv, ChunkKv, "mean attention of chunks of tokens, by layer (ChunkKV, arXiv 2502.00299)")

}  // namespace palimpsest
