#include "palimpsest/eval/repetition.h"

#include <algorithm>
#include <vector>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

// Heads report concurrently, each to its own row; layers one after the other, so they share rows of weights.
class RepetitionReceiver final : public AttentionReceiver {
 public:
  RepetitionReceiver(const Cache& cache, std::span<float> scores) : cache_(cache), scores_(scores) {
    weights_.resize(at(cache.geometry().max_kv_heads()));
    rows_.resize(at(cache.geometry().heads()));
  }
  float* const* weights(std::size_t slots) {
    for (auto& row : weights_) row.resize(slots);
    for (std::size_t head = 0; head < rows_.size(); ++head) rows_[head] = weights_of(static_cast<int>(head)).data();
    return rows_.data();
  }
  void receive(const StepSignal& signal) override {  // weights: nothing else was requested
    const PositionView position = cache_.table(0).position();
    const std::vector<float>& weights = weights_of(signal.head);
    const std::size_t tokens = scores_.size() / rows_.size();
    const std::span<float> row = scores_.subspan(at(signal.head) * tokens, tokens);
    for (std::size_t slot = 0; slot < position.size(); ++slot)
      if (position[slot] != kNoPosition && at(position[slot]) < tokens)
        row[at(position[slot])] = std::max(row[at(position[slot])], weights[slot]);
  }

 private:
  std::vector<float>& weights_of(int head) { return weights_[at(cache_.geometry().kv_head_of(head))]; }

  const Cache& cache_;
  std::span<float> scores_;
  std::vector<std::vector<float>> weights_;  // [max KV heads of a layer][slots], of the current layer
  std::vector<float*> rows_;                 // [heads]
};

}  // namespace

bool read_repetition(FullReader& reader, std::span<const TokenId> text, std::span<const TokenId> instruction,
                     std::span<float> scores, const std::function<bool(std::size_t tokens)>& read) {
  if (instruction.size() >= kRepeatedPart) fail("an instruction of {} tokens leaves no room", instruction.size());
  RepetitionReceiver receiver(reader.cache(), scores);
  for (auto rest = text; !rest.empty();) {
    std::vector<TokenId> part(instruction.begin(), instruction.end());
    const auto chunk = rest.first(std::min(kRepeatedPart - part.size(), rest.size()));
    part.insert(part.end(), chunk.begin(), chunk.end());
    reader.read(part, [&](SequenceStep& step) {
      step.receiver = &receiver;
      step.weights = receiver.weights(reader.slots());
      step.request.weight_reduction = WeightReduction::kMaxOverAll;
    });
    rest = rest.subspan(chunk.size());
    if (!read(chunk.size())) return false;
    if (!rest.empty()) reader.undo(part.size());
  }
  return true;
}

}  // namespace palimpsest
