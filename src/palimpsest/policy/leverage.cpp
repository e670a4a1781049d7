// Statistical leverage of a token's key: x' (X'X)^-1 x, with X the un-rotated keys less their mean: large for keys that
// the other keys do not span (Compactor, arXiv 2507.08143, its query-agnostic half). Exact, where the paper and
// kvpress's LeverageScorePress sketch the keys by a random matrix of 48 columns; with their ridge of 0.01.
#include <algorithm>
#include <memory>
#include <vector>

#include "palimpsest/core/cholesky.h"
#include "palimpsest/core/rope.h"
#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/query_centres.h"

namespace palimpsest {
namespace {

class Leverage final : public Policy {
  static constexpr double kRidge = 0.01;

 public:
  Signals signals() const override {
    return {.keys = Keys{}, .ordered = true, .model = true, .original_positions = true};
  }
  void prepare(const PolicyModel& model) override {
    for (std::size_t head = 0; head < model.rope.size(); ++head) {
      const bool same = head > 0 && model.rope[head] == model.rope[head - 1];
      rotations_.push_back(same ? rotations_.back() : std::make_shared<const Rotation>(model.rope[head]));
    }
  }

  void score(const HeadView& head, std::span<float> score) const override {
    const auto n = static_cast<std::size_t>(head.keys.width);
    const int tokens = head.keys.count;
    thread_local std::vector<float> keys, mean, matrix;
    thread_local std::vector<double> gram, inverse;
    unrotate(head, keys);
    const Rows rows{keys.data(), tokens, head.keys.width, head.keys.width};
    mean.assign(n, 0);
    for (int i = 0; i < tokens; ++i) add_scaled(1 / static_cast<float>(tokens), rows[i], mean);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] -= mean[i % n];
    gram.assign(n * n, 0);
    for (int i = 0; i < tokens; ++i)
      for (std::size_t a = 0; a < n; ++a)
        for (std::size_t b = 0; b <= a; ++b) gram[a * n + b] += double{rows[i][a]} * rows[i][b];
    inverse.assign(n * n, 0);
    for (std::size_t a = 0; a < n; ++a) gram[a * n + a] += kRidge, inverse[a * n + a] = 1;
    if (!solve_positive_definite(gram, head.keys.width, inverse, head.keys.width)) {
      std::ranges::fill(score, 0.0F);
      return;
    }
    matrix.assign(inverse.begin(), inverse.end());
    quadratic_forms({matrix.data(), head.keys.width, head.keys.width, head.keys.width}, rows, score);
  }

 private:
  struct Rotation {
    explicit Rotation(const RopeOptions& options) : frequencies(options), pairs(options) {}
    RopeFrequencies frequencies;
    RotatedPairs pairs;
  };

  // By the negative of each token's position.
  void unrotate(const HeadView& head, std::vector<float>& keys) const {
    const Rotation& rotation = *rotations_[static_cast<std::size_t>(head.table)];
    const RotatedPairs& pairs = rotation.pairs;
    const auto n = static_cast<std::size_t>(head.keys.width);
    thread_local std::vector<float> row;
    row.resize(2 * pairs.count);
    keys.clear();
    for (int i = 0; i < head.keys.count; ++i) {
      const auto key = head.keys[i];
      keys.insert(keys.end(), key.begin(), key.end());
      if (pairs.count == 0) continue;
      rotation.frequencies.row(head.position[static_cast<std::size_t>(i)], row.data());
      float* const out = keys.data() + static_cast<std::size_t>(i) * n;
      for (std::size_t pair = 0; pair < pairs.count; ++pair) {
        const float real = out[pairs.real(pair)], imaginary = out[pairs.imaginary(pair)];
        const float cos = row[pair], sin = row[pairs.count + pair];
        out[pairs.real(pair)] = real * cos + imaginary * sin;
        out[pairs.imaginary(pair)] = imaginary * cos - real * sin;
      }
    }
  }

  std::vector<std::shared_ptr<const Rotation>> rotations_;  // [KV heads of all layers]
};

}  // namespace

PALIMPSEST_POLICY(leverage, Leverage, "statistical leverage of un-rotated keys (Compactor, arXiv 2507.08143)")

}  // namespace palimpsest
