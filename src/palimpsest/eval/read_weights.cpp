#include "palimpsest/eval/read_weights.h"

#include <vector>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

class Receiver final : public AttentionReceiver {
 public:
  Receiver(const Cache& cache, const std::function<void(const HeadWeights&)>& receive)
      : cache_(cache), receive_(receive) {
    weights_.resize(static_cast<std::size_t>(cache.geometry().max_kv_heads()));
    rows_.resize(static_cast<std::size_t>(cache.geometry().heads()));
  }
  float* const* weights(std::size_t slots) {
    for (auto& row : weights_) row.resize(slots);
    for (std::size_t head = 0; head < rows_.size(); ++head) rows_[head] = weights_of(static_cast<int>(head)).data();
    return rows_.data();
  }
  void receive(const StepSignal& signal) override {  // weights: nothing else was requested
    receive_({.head = signal.head,
              .position = cache_.table(0).position(),
              .weight = weights_of(signal.head),
              .next = cache_.next()});
  }

 private:
  std::vector<float>& weights_of(int head) {
    return weights_[static_cast<std::size_t>(cache_.geometry().kv_head_of(head))];
  }

  const Cache& cache_;
  const std::function<void(const HeadWeights&)>& receive_;
  std::vector<std::vector<float>> weights_;  // [max KV heads of a layer][slots], of the current layer
  std::vector<float*> rows_;
};

}  // namespace

long long read_weights(Decoder& decoder, std::span<const TokenId> text, long long first, WeightReduction reduction,
                       const std::function<void(const HeadWeights&)>& receive,
                       const std::function<bool(long long done, long long total)>& progress) {
  CacheOptions options = decoder.cache_options();
  if (!options.pages)
    fail("`palimpsest heads` is supported on the CPU's fast path only: leave out --portable, --device and --rpc");
  options.page_size = 64;
  Cache cache(options);
  Receiver receiver(cache, receive);
  AttentionRule rule;
  if (decoder.model().hyper().positions() != PositionKind::kRotary) rule.rotation = Rotation::kNever;
  long long done = 0;
  for (const TokenId& token : text) {
    cache.insert(1);
    SequenceStep step{.cache = &cache, .rule = rule, .tokens = {&token, 1}};
    if (done >= first) {
      step.weights = receiver.weights(cache.table(0).score().size());
      step.weight_reduction = reduction;
      step.receiver = &receiver;
    }
    decoder.step({&step, 1});
    ++done;
    if (progress && !progress(done, static_cast<long long>(text.size()))) break;
  }
  return done;
}

}  // namespace palimpsest
