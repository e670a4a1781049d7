#include "palimpsest/eval/far_attention.h"

#include <algorithm>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

class FarWeights final : public AttentionReceiver {
 public:
  FarWeights(const Cache& cache, int sinks, int recent) : cache_(cache), sinks_(sinks), recent_(recent) {
    const HeadGeometry& geometry = cache.geometry();
    sum_.resize(static_cast<std::size_t>(geometry.heads()));
    weights_.resize(static_cast<std::size_t>(geometry.max_kv_heads()));
    rows_.resize(sum_.size());
  }
  float* const* weights(std::size_t slots) {
    for (auto& row : weights_) row.resize(slots);
    for (int head = 0; head < cache_.geometry().heads(); ++head)
      rows_[static_cast<std::size_t>(head)] = weights_of(head).data();
    return rows_.data();
  }
  void receive(const StepSignal& signal) override {  // weights: nothing else was requested
    const int head = signal.head;
    const auto& weights = weights_of(head);
    const auto position = cache_.table(0).position();
    double& sum = sum_[static_cast<std::size_t>(head)];
    float max = 0;
    for (std::size_t slot = 0; slot < position.size(); ++slot)
      if (position[slot] >= sinks_ && position[slot] < cache_.next() - recent_) max = std::max(max, weights[slot]);
    sum += double{max};
  }
  const std::vector<double>& sum() const { return sum_; }

 private:
  std::vector<float>& weights_of(int head) {
    return weights_[static_cast<std::size_t>(cache_.geometry().kv_head_of(head))];
  }

  const Cache& cache_;
  Position sinks_, recent_;
  std::vector<double> sum_;
  std::vector<std::vector<float>> weights_;  // [max KV heads of a layer][slots], of the current layer
  std::vector<float*> rows_;
};

}  // namespace

std::vector<double> far_attention(Decoder& decoder, std::span<const TokenId> text, int sinks, int recent,
                                  const std::function<bool(long long done, long long total)>& progress) {
  const auto total = static_cast<long long>(text.size());
  if (total <= sinks + recent)
    fail("a text of {} tokens has none behind {} sinks and before the newest {}: give a longer one", total, sinks,
         recent);
  CacheOptions options = decoder.cache_options();
  if (!options.pages)
    fail("`palimpsest heads` is supported on the CPU's fast path only: leave out --portable, --device and --rpc");
  options.page_size = 64;
  Cache cache(options);
  FarWeights far(cache, sinks, recent);
  AttentionRule rule;
  if (decoder.model().hyper().positions() != PositionKind::kRotary) rule.rotation = Rotation::kNever;
  long long done = 0;
  for (const TokenId& token : text) {
    cache.insert(1);
    SequenceStep step{.cache = &cache, .rule = rule, .tokens = {&token, 1}};
    if (cache.next() > sinks + recent) {
      step.weights = far.weights(cache.table(0).score().size());
      step.weight_reduction = WeightReduction::kMaxOverGroup;
      step.receiver = &far;
    }
    decoder.step({&step, 1});
    ++done;
    if (progress && !progress(done, total)) break;
  }
  std::vector<double> shares = far.sum();
  for (double& share : shares) share /= static_cast<double>(std::max(1LL, done - sinks - recent));
  return shares;
}

}  // namespace palimpsest
