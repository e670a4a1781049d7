// A scorer trained on this model's attention, with time: it predicts a token's future attention from its age, the
// attention that it received lately and in total, its key and its value (TemporalKV, which the article "Sparse eviction
// is the right llama.cpp primitive" names without describing it). Linear, with weights per head:
//
//   on insert   base  = w0 + w1 ||k|| + w2 ||v|| + a . k + b . v                                     k un-rotated
//   decision    score = base + t0 ln(1 + age) + t1 / sqrt(1 + age) + t2 ln(sum + e) + t3 ln(lately + e)
//                            + t4 sqrt(sum / (1 + age)) + t5 sqrt(lately)                            e = 1e-4
//
// age: tokens since. sum: attention from all queries so far. lately: the token's share of the attention of the last 32
// to 63 queries. The target is the square root of the mean attention over the rest of the text (`palimpsest fit`).
// Weights of a head: w0, w1, w2, t0 to t5, a, b (policy/scorer_file.h).
#include <vector>

#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/scorer_formats.h"
#include "palimpsest/policy/temporal_inputs.h"

namespace palimpsest {
namespace {

class Temporal final : public Policy {
  static constexpr std::size_t kTime = kLinearInputs, kInputs = kTemporalInputs;  // kTime: first weight of time

 public:
  Signals signals() const override {
    return {.attention_sum = AttentionSum{},
            .attention_window = AttentionWindow{.queries = 32, .past = true},
            .insert_score = InsertScore{},
            .model = true};
  }

  void prepare(const PolicyModel& model) override {
    width_ = kInputs + at(model.head_dim + model.value_dim);
    weights_ = read_scorer(sized(kTemporalFormat, kInputs, model), model);
  }

  void score_inserted(const HeadView& head, std::span<float> score) const override {
    const auto w = weights_of(head.table);
    const auto dim = static_cast<std::size_t>(head.keys.width);
    for (std::size_t i = 0; i < score.size(); ++i) {
      const auto key = head.keys[static_cast<int>(i)], value = head.values[static_cast<int>(i)];
      score[i] = w[0] + w[1] * norm(key) + w[2] * norm(value) + dot(w.subspan(kInputs, dim), key) +
                 dot(w.subspan(kInputs + dim, value.size()), value);
    }
  }

  void score(const HeadView& head, std::span<float> score) const override {
    const auto t = weights_of(head.table).subspan(kTime, kInputs - kTime);
    double all = 0;
    Position newest = 0;
    for (std::size_t i = 0; i < score.size(); ++i) {
      if (head.position[i] == kNoPosition) continue;
      all += head.attention[i];
      newest = std::max(newest, head.position[i]);
    }
    const float scale = all > 0 ? static_cast<float>(1 / all) : 0;
    for (std::size_t i = 0; i < score.size(); ++i) {
      if (head.position[i] == kNoPosition) continue;
      const float age = static_cast<float>(1 + newest - head.position[i]);
      const auto time = temporal_inputs(age, head.attention_sum[i], head.attention[i] * scale);
      score[i] = head.insert_score[i];
      for (std::size_t j = 0; j < time.size(); ++j) score[i] += t[j] * time[j];
    }
  }

 private:
  std::span<const float> weights_of(int table) const {
    return std::span(weights_).subspan(static_cast<std::size_t>(table) * width_, width_);
  }

  std::vector<float> weights_;  // [KV heads of all layers][width]
  std::size_t width_ = 0;
};

}  // namespace

PALIMPSEST_POLICY(temporal, Temporal, "score of a small network with time, trained on this model's attention")

}  // namespace palimpsest
