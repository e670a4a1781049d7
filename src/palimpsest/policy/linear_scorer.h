// Scores that are linear in a token's key and value, with weights per head from a file: policies that were trained on a
// model, and differ in what they were trained to predict.
//
//   score = w0 + w1 ||k|| + w2 ||v|| + a . k + b . v        k un-rotated
//
// A score never changes: it is computed once, on insert (docs/decisions/0014). Weights of a head: w0, w1, w2, a, b
// (policy/scorer_file.h); of a head of smaller widths than the model's largest, zeros follow.
#pragma once

#include <string_view>
#include <vector>

#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/scorer_formats.h"

namespace palimpsest {

class LinearScorer : public Policy {
 public:
  Signals signals() const override {
    return {.keys = Keys{}, .values = Values{}, .score_on_insert = true, .model = true};
  }

  void prepare(const PolicyModel& model) override {
    const ScorerFormat format = sized(file_, kLinearInputs, model);
    weights_ = read_scorer(format, model);
    width_ = format.floats;
  }

  void score(const HeadView& head, std::span<float> score) const override {
    const auto dim = static_cast<std::size_t>(head.keys.width), value_dim = static_cast<std::size_t>(head.values.width);
    const auto w = std::span(weights_).subspan(static_cast<std::size_t>(head.table) * width_, width_);
    for (std::size_t i = 0; i < score.size(); ++i) {
      const auto key = head.keys[static_cast<int>(i)], value = head.values[static_cast<int>(i)];
      score[i] = w[0] + w[1] * norm(key) + w[2] * norm(value) + dot(w.subspan(3, dim), key) +
                 dot(w.subspan(3 + dim, value_dim), value);
    }
  }

 protected:
  explicit LinearScorer(const ScorerFormat& file) : file_(file) {}

 private:
  ScorerFormat file_;
  std::vector<float> weights_;  // [KV heads of all layers][width_]
  std::size_t width_ = 0;       // 3 + head_dim + value_dim, of the widest head
};

}  // namespace palimpsest
