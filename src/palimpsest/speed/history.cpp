#include "palimpsest/speed/history.h"

#include <algorithm>
#include <random>
#include <vector>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

// Rows of normally distributed numbers, from random offsets of one block.
class Noise {
 public:
  explicit Noise(std::uint32_t seed) : generator_(seed), block_(std::size_t{1} << 20) {
    std::normal_distribution<float> normal(0, 1);
    for (float& value : block_) value = normal(generator_);
  }
  Rows rows(int count, int width) {
    const std::size_t needed = static_cast<std::size_t>(count) * static_cast<std::size_t>(width);
    if (block_.size() < 2 * needed) block_.resize(2 * needed, 1);
    const std::size_t at = std::uniform_int_distribution<std::size_t>(0, block_.size() - needed)(generator_);
    return {.data = block_.data() + at, .count = count, .width = width, .stride = width};
  }

 private:
  std::mt19937 generator_;
  std::vector<float> block_;
};

}  // namespace

void simulate_generation(Sequence& sequence, int prompt, int tokens, std::uint32_t seed) {
  const Signals& signals = sequence.plan().signals();
  if (!signals.positions_only() && !signals.score_on_insert)
    fail("policy {} decides by what only the model can say: fill its cache by reading a prompt",
         sequence.options().method.policy);
  sequence.clear();
  Noise noise(seed);
  const HeadGeometry& geometry = sequence.cache().geometry();
  const auto step = [&] {
    const SequenceStep work = sequence.next();
    const int count = static_cast<int>(work.tokens.size());
    for (int head = 0; work.report_kv && head < geometry.heads(); ++head) {
      const LayerGeometry& g = geometry.layer_geometry(head);
      work.receiver->receive({.kind = StepSignal::Kind::kKeysAndValues,
                              .head = head,
                              .rows = noise.rows(count, g.key_width),
                              .values = noise.rows(count, g.value_width)});
    }
    sequence.done({});
  };
  const std::vector<TokenId> text(static_cast<std::size_t>(std::clamp(prompt, 0, tokens)), 0);
  if (!text.empty()) sequence.read(text);
  while (sequence.stage() != Sequence::Stage::kIdle) step();
  for (int done = static_cast<int>(text.size()); done < tokens; ++done) {
    sequence.read(TokenId{0});
    step();
  }
}

void copy(const Sequence& from, Sequence& to) {
  std::vector<std::byte> bytes;
  ByteWriter out([&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); });
  from.save(out);
  ByteReader in(bytes, "a copied sequence");
  to.load(in);
}

}  // namespace palimpsest
