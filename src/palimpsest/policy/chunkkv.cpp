// The mean attention of chunks of 10 tokens, from the last 32 queries, over all heads of the layer: tokens stay or go
// with their neighbours (ChunkKV, arXiv 2502.00299; kvpress's ChunkKVPress around its SnapKV: window=64, kernel=5,
// chunk=20). The tokens after the last whole chunk are one chunk.
//
// spiky=4 (kvpress's EntropyGatedChunkKVPress): of a chunk whose mean is at least the chunks' median, but whose
// weights' entropy is below their median, only the 4 tokens of the highest weight have the chunk's score. Its other
// tokens rank below all chunks, by their weights.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "palimpsest/core/score_order.h"
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
    all.push_back(
        count_option({"spiky", "TOKENS|auto", "kept of a chunk of few high weights; auto: all"}, spiky_, 1 << 20));
    return all;
  }
  void score(const HeadView& head, std::span<float> score) const override {
    pooled(head.attention, score);
    thread_local std::vector<float> means, entropies;
    means.clear();
    entropies.clear();
    const auto chunk = static_cast<std::size_t>(chunk_);
    for (std::size_t first = 0; first < score.size(); first += chunk) {
      const auto mine = score.subspan(first, std::min(chunk, score.size() - first));
      means.push_back(std::accumulate(mine.begin(), mine.end(), 0.0F) / static_cast<float>(mine.size()));
      if (spiky_ > 0) entropies.push_back(entropy(mine));
    }
    const float high = spiky_ > 0 ? median(means) : 0, low = spiky_ > 0 ? median(entropies) : 0;
    for (std::size_t c = 0; c < means.size(); ++c) {
      const auto mine = score.subspan(c * chunk, std::min(chunk, score.size() - c * chunk));
      if (spiky_ > 0 && means[c] >= high && entropies[c] < low)
        keep_best(mine, means[c]);
      else
        std::ranges::fill(mine, means[c]);
    }
  }

 private:
  // Of the weights as shares of their sum, over its maximum: 1 if all are equal.
  static float entropy(std::span<const float> weight) {
    if (weight.size() < 2) return 0;
    constexpr double kTiny = 1e-9;
    double sum = 0, out = 0;
    for (const float w : weight) sum += w;
    for (const float w : weight) out -= w / (sum + kTiny) * std::log(w / (sum + kTiny) + kTiny);
    return static_cast<float>(std::clamp(out / std::log(static_cast<double>(weight.size())), 0.0, 1.0));
  }

  // The lower one of an even number.
  static float median(std::vector<float> of) {
    if (of.empty()) return 0;
    const auto middle = of.begin() + static_cast<std::ptrdiff_t>((of.size() - 1) / 2);
    std::nth_element(of.begin(), middle, of.end(), score_below<float>);
    return *middle;
  }

  void keep_best(std::span<float> mine, float mean) const {
    thread_local std::vector<std::size_t> order;
    order.resize(mine.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return score_above(mine[a], mine[b]); });
    for (std::size_t i = 0; i < order.size(); ++i) {
      float& score = mine[order[i]];
      score = i < static_cast<std::size_t>(spiky_) ? mean : -1 / (1 + score);
    }
  }

  int chunk_ = 10, spiky_ = 0;
};

}  // namespace

PALIMPSEST_POLICY(chunkkv, ChunkKv, "mean attention of chunks of tokens, by layer (ChunkKV, arXiv 2502.00299)")

}  // namespace palimpsest
