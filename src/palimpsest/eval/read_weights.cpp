#include "palimpsest/eval/read_weights.h"

#include <vector>

#include "palimpsest/engine/sequence/full_reader.h"

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
  FullReader reader(decoder, "`palimpsest heads` is supported");
  Receiver receiver(reader.cache(), receive);
  long long done = 0;
  for (const TokenId& token : text) {
    reader.read({&token, 1}, [&](SequenceStep& step) {
      if (done < first) return;
      step.weights = receiver.weights(reader.slots());
      step.request.weight_reduction = reduction;
      step.receiver = &receiver;
    });
    ++done;
    if (progress && !progress(done, static_cast<long long>(text.size()))) break;
  }
  return done;
}

}  // namespace palimpsest
