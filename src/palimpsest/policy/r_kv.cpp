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
#include "palimpsest/policy/softmax.h"

namespace palimpsest {
namespace {

constexpr float kLambda = 0.07F, kSimilar = 0.5F;

constexpr int kBlock = 32;  // keys

// Finds in each row of cosines the newest similar token. Rows are closed from the newest token on, so a pair is
// computed once, and only if it can still be the answer of one of its tokens: in a text with repetitions few are.
class NewestSimilar {
 public:
  // `unit`: unit keys, oldest first. Calls found(token, cosine) for each row that has one.
  template <typename Found>
  void search(const Rows& unit, const Interrupt* interrupt, Found found) {
    cosine_.resize(kBlock);
    closed_.assign(at(unit.count), false);
    open_.clear();
    for (int row = 0; row < unit.count; row += kBlock) open_.push_back(std::min(kBlock, unit.count - row));
    const auto close = [&](int row) {
      if (!closed_[at(row)]) --open_[at(row / kBlock)];
      closed_[at(row)] = true;
    };
    for (int row = unit.count - 1; row > 0; --row) {
      if (interrupt != nullptr) interrupt->check();
      for (int block = (row - 1) / kBlock; block >= 0; --block) {
        if (closed_[at(row)] && open_[at(block)] == 0) continue;
        const int first = block * kBlock, count = std::min(kBlock, row - first);
        dot_rows(unit.rows(first, count), unit[row], std::span(cosine_).first(at(count)));
        for (int i = count - 1; i >= 0; --i) {
          if (!(cosine_[at(i)] > kSimilar)) continue;
          if (!closed_[at(row)]) close(row), found(first + i, cosine_[at(i)]);
          if (!closed_[at(first + i)]) close(first + i), found(row, cosine_[at(i)]);
        }
      }
      close(row);  // it has none
    }
  }

 private:
  std::vector<float> cosine_;  // of a block
  std::vector<bool> closed_;   // [rows]
  std::vector<int> open_;      // [blocks] rows that are not closed
};

// Softmax over the tokens of their mean cosine with the others: the product of a token's unit key with the sum of all.
void redundancy(const HeadView& head, std::vector<float>& out) {
  const Rows& keys = head.keys;
  const auto count = at(keys.count), width = at(keys.width);
  thread_local std::vector<float> unit, all;
  thread_local std::vector<double> sum_of_all;
  thread_local NewestSimilar newest;
  unit.assign(count * width, 0);
  sum_of_all.assign(width, 0);
  const auto unit_key = [&](std::size_t i) { return std::span<float>(unit).subspan(i * width, width); };
  for (std::size_t i = 0; i < count; ++i) {
    const auto key = keys[static_cast<int>(i)];
    const auto to = unit_key(i);
    add_scaled(1 / std::max(norm(key), std::numeric_limits<float>::min()), key, to);
    for (std::size_t d = 0; d < width; ++d) sum_of_all[d] += to[d];
  }
  all.assign(sum_of_all.begin(), sum_of_all.end());
  out.resize(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = dot(all, unit_key(i)) - dot(unit_key(i), unit_key(i));
  newest.search({unit.data(), keys.count, keys.width, keys.width}, head.interrupt,
                [&](int token, float cosine) { out[at(token)] -= cosine; });
  for (float& x : out) x /= static_cast<float>(count);
  softmax(out);
}

class RKv final : public Policy {
 public:
  Signals signals() const override {
    return {.attention_window = AttentionWindow{.queries = 8, .group_max = true},
            .keys = Keys{},
            .ordered = true,
            .pairs = true};
  }
  void score(const HeadView& head, std::span<float> score) const override {
    thread_local std::vector<float> repeats;
    max_pool(7, head.attention, score);
    redundancy(head, repeats);
    // The window's sum is 8 times the paper's mean.
    for (std::size_t i = 0; i < score.size(); ++i) score[i] = kLambda * score[i] / 8 - (1 - kLambda) * repeats[i];
  }
};

}  // namespace

PALIMPSEST_POLICY(r_kv, RKv, "attention from the last 8 queries minus redundancy of keys (R-KV, arXiv 2505.24133)")

}  // namespace palimpsest
