// A scorer trained on this model's attention predicts a token's future attention from its key and value (the sparse
// eviction paper names a learned policy without describing it). Linear, with weights per head:
//
//   score = w0 + w1 ||k|| + w2 ||v|| + a . k + b . v        k un-rotated
//
// The target is the square root of the mean attention over the rest of the text (tools/train/scorer), so a score never
// changes: it is computed once, on insert (docs/decisions/0014). Policy `temporal` adds time and attention.
// Weights of a head: w0, w1, w2, a, b (policy/scorer_file.h).
#include <vector>

#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/scorer_file.h"

namespace palimpsest {
namespace {

class Learned final : public Policy {
 public:
  Signals signals() const override {
    return {.keys = Keys{}, .values = Values{}, .score_on_insert = true, .model = true};
  }

  void prepare(const PolicyModel& model) override {
    weights_ = read_scorer({.policy = "learned", .magic = "PLMPSCOR", .extension = ".scorer", .inputs = 3}, model);
  }

  void score(const HeadView& head, std::span<float> score) const override {
    const auto dim = static_cast<std::size_t>(head.keys.width), value_dim = static_cast<std::size_t>(head.values.width);
    const std::size_t width = 3 + dim + value_dim;
    const auto w = std::span(weights_).subspan(static_cast<std::size_t>(head.table) * width, width);
    for (std::size_t i = 0; i < score.size(); ++i) {
      const auto key = head.keys[static_cast<int>(i)], value = head.values[static_cast<int>(i)];
      score[i] =
          w[0] + w[1] * norm(key) + w[2] * norm(value) + dot(w.subspan(3, dim), key) + dot(w.subspan(3 + dim), value);
    }
  }

 private:
  std::vector<float> weights_;  // [KV heads of all layers][3 + head_dim + value_dim]
};

}  // namespace

PALIMPSEST_POLICY(learned, Learned, "score of a small network trained on this model's attention")

}  // namespace palimpsest
