#include "palimpsest/eval/repetition.h"

#include <algorithm>
#include <vector>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

// Heads report concurrently, each to its own row.
class RepetitionReceiver final : public AttentionReceiver {
 public:
  RepetitionReceiver(const Cache& cache, std::span<float> scores)
      : weights(cache.geometry()), cache_(cache), scores_(scores) {}
  void receive(const StepSignal& signal) override {  // weights: nothing else was requested
    const PositionView position = cache_.table(0).position();
    const std::vector<float>& weight = weights.of(signal.head);
    const std::size_t tokens = scores_.size() / at(cache_.geometry().heads());
    const std::span<float> row = scores_.subspan(at(signal.head) * tokens, tokens);
    for (std::size_t slot = 0; slot < position.size(); ++slot)
      if (position[slot] != kNoPosition && at(position[slot]) < tokens)
        row[at(position[slot])] = std::max(row[at(position[slot])], weight[slot]);
  }
  WeightRows weights;

 private:
  const Cache& cache_;
  std::span<float> scores_;
};

}  // namespace

bool read_repetition(FullReader& reader, std::span<const TokenId> text, std::span<const TokenId> instruction,
                     std::span<float> scores, const std::function<bool(std::size_t tokens)>& read) {
  if (instruction.size() >= kRepeatedPart) fail("an instruction of {} tokens leaves no room", instruction.size());
  if (const std::size_t most = kRepeatedPart - instruction.size();
      text.size() > most && reader.cache().options().state_floats > 0)
    fail("recurrent layers cannot forget a part of the repetition of {} tokens: give a text of at most {} tokens",
         text.size(), most);
  RepetitionReceiver receiver(reader.cache(), scores);
  for (auto rest = text; !rest.empty();) {
    std::vector<TokenId> part(instruction.begin(), instruction.end());
    const auto chunk = rest.first(std::min(kRepeatedPart - part.size(), rest.size()));
    part.insert(part.end(), chunk.begin(), chunk.end());
    reader.read(part, [&](SequenceStep& step) {
      step.receiver = &receiver;
      step.weights = receiver.weights.of_step(reader.slots());
      step.request.weight_reduction = WeightReduction::kMaxOverAll;
    });
    rest = rest.subspan(chunk.size());
    if (!read(chunk.size())) return false;
    if (!rest.empty()) reader.undo(part.size());
  }
  return true;
}

}  // namespace palimpsest
