// Keeps tokens with high attention from the last 8 queries whose keys no later key repeats (R-KV, arXiv 2505.24133,
// section 3):
//
//   score_j = lambda * attention_j - (1 - lambda) * softmax_j(mean over i of cos(k_i, k_j))      lambda = 0.07
//
// attention: max over the query group, mean over queries, max-pooled over 7 neighbours (the authors' code takes the max
// logit before the softmax). In each row of cosines the diagonal, and the newest token with a cosine above 0.5, count
// as 0: of tokens that repeat each other the newest is kept.
#include <cmath>
#include <limits>
#include <vector>

#include "palimpsest/core/score_order.h"
#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/pool.h"

namespace palimpsest {
namespace {

constexpr float kLambda = 0.07F, kSimilar = 0.5F;

// Softmax over the tokens of their mean cosine with the others. Each pair is computed once.
void redundancy(const Rows& keys, std::vector<float>& out) {
  const auto count = static_cast<std::size_t>(keys.count), width = static_cast<std::size_t>(keys.width);
  thread_local std::vector<float> unit, cosine, newest_cosine;
  thread_local std::vector<int> newest;  // of each row: the newest similar token; -1: none
  unit.assign(count * width, 0);
  const auto unit_key = [&](std::size_t i) { return std::span<float>(unit).subspan(i * width, width); };
  for (std::size_t i = 0; i < count; ++i) {
    const auto key = keys[static_cast<int>(i)];
    add_scaled(1 / std::max(norm(key), std::numeric_limits<float>::min()), key, unit_key(i));
  }
  out.assign(count, 0);
  newest.assign(count, -1);
  newest_cosine.assign(count, 0);
  cosine.resize(count);
  const auto similar = [&](std::size_t row, std::size_t token, float value) {
    newest[row] = static_cast<int>(token);
    newest_cosine[row] = value;
  };
  for (std::size_t i = 1; i < count; ++i) {
    const auto older = std::span(cosine).first(i);
    dot_rows({unit.data(), static_cast<int>(i), keys.width, keys.width}, unit_key(i), older);
    for (std::size_t j = 0; j < i; ++j) {
      out[i] += older[j];
      out[j] += older[j];
      if (older[j] > kSimilar) {
        similar(i, j, older[j]);
        similar(j, i, older[j]);
      }
    }
  }
  for (std::size_t row = 0; row < count; ++row)
    if (newest[row] >= 0) out[static_cast<std::size_t>(newest[row])] -= newest_cosine[row];
  for (float& x : out) x /= static_cast<float>(count);
  const float max = *std::ranges::max_element(out, score_below<float>);
  float sum = 0;
  for (float& x : out) sum += x = std::exp(x - max);
  for (float& x : out) x /= sum;
}

class RKv final : public Policy {
 public:
  Signals signals() const override {
    return {.attention_window = AttentionWindow{.queries = 8, .group_max = true}, .keys = Keys{}, .ordered = true};
  }
  void score(const HeadView& head, std::span<float> score) const override {
    thread_local std::vector<float> repeats;
    max_pool_7(head.attention, score);
    redundancy(head.keys, repeats);
    // The window's sum is 8 times the paper's mean.
    for (std::size_t i = 0; i < score.size(); ++i) score[i] = kLambda * score[i] / 8 - (1 - kLambda) * repeats[i];
  }
};

}  // namespace

PALIMPSEST_POLICY(r_kv, RKv, "attention from the last 8 queries minus redundancy of keys (R-KV, arXiv 2505.24133)")

}  // namespace palimpsest
