#include "palimpsest/eval/read_weights.h"

#include <vector>

#include "palimpsest/engine/sequence/full_reader.h"

namespace palimpsest {
namespace {

class Receiver final : public AttentionReceiver {
 public:
  Receiver(const Cache& cache, const std::function<void(const HeadWeights&)>& receive)
      : weights(cache.geometry()), cache_(cache), receive_(receive) {}
  void receive(const StepSignal& signal) override {  // weights: nothing else was requested
    receive_({.head = signal.head,
              .position = cache_.table(0).position(),
              .weight = weights.of(signal.head),
              .next = cache_.next()});
  }
  WeightRows weights;

 private:
  const Cache& cache_;
  const std::function<void(const HeadWeights&)>& receive_;
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
      step.weights = receiver.weights.of_step(reader.slots());
      step.request.weight_reduction = reduction;
      step.receiver = &receiver;
    });
    ++done;
    if (progress && !progress(done, static_cast<long long>(text.size()))) break;
  }
  return done;
}

}  // namespace palimpsest
