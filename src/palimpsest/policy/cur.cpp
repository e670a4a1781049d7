// How much of its neighbourhood's energy a token has, in keys and in values: ||k||^2 over the sum of the 16 tokens of
// its part of the text, times the same of v (CurDKV, arXiv 2509.15038; kvpress's CURPress: leverage scores approximated
// by squared norms, in parts of 16).
#include <algorithm>
#include <vector>

#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class Cur final : public Policy {
 public:
  Signals signals() const override { return {.keys = Keys{}, .values = Values{}, .ordered = true}; }
  std::vector<PolicyOption> options() override {
    return {count_option({"part", "TOKENS|auto", "tokens whose norms are compared; auto: 16"}, part_, 1 << 20)};
  }
  void score(const HeadView& head, std::span<float> score) const override {
    norm_rows(head.keys, score);
    thread_local std::vector<float> values;
    values.resize(score.size());
    norm_rows(head.values, values);
    share(score);
    share(values);
    for (std::size_t i = 0; i < score.size(); ++i) score[i] *= values[i];
  }

 private:
  // Norms become shares of their part's sum of squares.
  void share(std::span<float> norms) const {
    const auto part = static_cast<std::size_t>(part_);
    for (std::size_t first = 0; first < norms.size(); first += part) {
      const auto mine = norms.subspan(first, std::min(part, norms.size() - first));
      float sum = 0;
      for (float& x : mine) sum += x *= x;
      for (float& x : mine) x = sum > 0 ? x / sum : 0;
    }
  }

  int part_ = 16;
};

}  // namespace

PALIMPSEST_POLICY(cur, Cur, "shares of the squared norms of keys and values of 16 tokens (CurDKV, arXiv 2509.15038)")

}  // namespace palimpsest
