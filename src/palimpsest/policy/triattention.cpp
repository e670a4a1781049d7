// The expected attention from future queries, if each is its head's mean query at the position of one of the next
// 2^0, 2^1, ... 2^16 tokens (TriAttention, arXiv 2604.04921, section 4). For a key k, as rotated to its position, a
// query head of mean m and mean pair lengths l, both un-rotated, and the newest position P:
//
//   s = k . mean over the offsets d of R(P + d) m + sum over rotated pairs f of (l_f - ||m_f||) ||k_f||
//
// The second term is large where queries have no common direction: a long key may then receive attention from any.
// Score: max over the query group of (s - mean) / standard deviation, both over the head's tokens.
// The mean of the rotations by d does not change: a decision computes one rotation, by P.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <memory>
#include <vector>

#include "palimpsest/core/rope.h"
#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/query_centres.h"

namespace palimpsest {
namespace {

constexpr int kMaxOffset = 1 << 16;

// One KV head's rotation, and of each pair its mean over the offsets.
struct Rotation {
  explicit Rotation(const RopeOptions& options) : frequencies(options), pairs(options), mean(pairs.count) {
    for (std::size_t pair = 0; pair < pairs.count; ++pair) {
      int count = 0;
      for (int offset = 1; offset <= kMaxOffset; offset *= 2, ++count)
        mean[pair] += std::polar(1.0, frequencies.angle(offset, static_cast<int>(pair)));
      mean[pair] /= count;
    }
  }

  RopeFrequencies frequencies;
  RotatedPairs pairs;
  std::vector<std::complex<double>> mean;
};

class TriAttention final : public Policy {
 public:
  Signals signals() const override { return {.keys = Keys{}, .model = true, .original_positions = true}; }

  void prepare(const PolicyModel& model) override {
    centres_ = QueryCentres(model);
    weights_ = read_scorer(centres_.format(), model);
    for (std::size_t head = 0; head < model.rope.size(); ++head) {  // a layer's heads are rotated alike
      const bool same = head > 0 && model.rope[head] == model.rope[head - 1];
      rotations_.push_back(same ? rotations_.back() : std::make_shared<const Rotation>(model.rope[head]));
    }
    members_.assign(at(model.heads), 0);
    // Lengths become l - ||m||.
    for (int head = 0; head < model.heads; ++head)
      for (int member = 0; member < model.group; ++member) {
        const auto mean = centres_.mean(std::span(weights_), head, member);
        const auto lengths = centres_.lengths(std::span(weights_), head, member);
        if (std::ranges::all_of(mean, [](float x) { return x == 0; })) break;  // this layer's group is smaller
        ++members_[at(head)];
        const Rotation& rotation = *rotations_[at(head)];
        for (std::size_t pair = 0; pair < rotation.pairs.count; ++pair)
          lengths[pair] -= std::hypot(mean[rotation.pairs.real(pair)], mean[rotation.pairs.imaginary(pair)]);
      }
  }

  void score(const HeadView& head, std::span<float> score) const override {
    const Rotation& rotation = *rotations_[at(head.table)];
    const auto dim = static_cast<std::size_t>(head.keys.width);
    Position newest = 0;
    int tokens = 0;
    for (std::size_t i = 0; i < score.size(); ++i) {
      if (head.position[i] == kNoPosition) continue;
      newest = std::max(newest, head.position[i]);
      ++tokens;
    }
    thread_local std::vector<float> at_newest, lengths, future, s;
    at_newest.resize(2 * rotation.pairs.count);
    rotation.frequencies.row(newest, at_newest.data());
    pair_lengths(head, rotation.pairs, lengths);
    s.resize(score.size());
    std::ranges::fill(score, -std::numeric_limits<float>::infinity());
    for (int member = 0; member < members_[at(head.table)]; ++member) {
      const auto mean = centres_.mean(std::span(weights_), head.table, member).first(dim);
      future.assign(mean.begin(), mean.end());
      rotate(rotation, at_newest, future);
      dot_rows(head.keys, future, s);
      if (rotation.pairs.count > 0) {
        const auto excess = centres_.lengths(std::span(weights_), head.table, member).first(rotation.pairs.count);
        for (std::size_t i = 0; i < s.size(); ++i)
          s[i] += dot(std::span(lengths).subspan(i * excess.size(), excess.size()), excess);
      }
      double sum = 0, squares = 0;
      for (std::size_t i = 0; i < s.size(); ++i)
        if (head.position[i] != kNoPosition) sum += double{s[i]};
      const double middle = sum / std::max(1, tokens);
      for (std::size_t i = 0; i < s.size(); ++i)
        if (head.position[i] != kNoPosition) squares += (double{s[i]} - middle) * (double{s[i]} - middle);
      const double deviation = std::sqrt(squares / std::max(1, tokens));
      const double scale = deviation > 0 ? 1 / deviation : 0;
      for (std::size_t i = 0; i < s.size(); ++i)
        score[i] = std::max(score[i], static_cast<float>((double{s[i]} - middle) * scale));
    }
  }

 private:
  // The length of each rotated pair of each key: [tokens][pairs].
  static void pair_lengths(const HeadView& head, const RotatedPairs& pairs, std::vector<float>& lengths) {
    lengths.resize(at(head.keys.count) * pairs.count);
    for (int i = 0; i < head.keys.count; ++i) {
      const auto key = head.keys[i];
      float* const out = lengths.data() + at(i) * pairs.count;
      for (std::size_t pair = 0; pair < pairs.count; ++pair) {
        const float a = key[pairs.real(pair)], b = key[pairs.imaginary(pair)];
        out[pair] = std::sqrt(a * a + b * b);
      }
    }
  }

  // By the newest position, then by the mean of the offsets' rotations.
  static void rotate(const Rotation& rotation, std::span<const float> at_newest, std::span<float> row) {
    const RotatedPairs& pairs = rotation.pairs;
    for (std::size_t pair = 0; pair < pairs.count; ++pair) {
      float &real = row[pairs.real(pair)], &imaginary = row[pairs.imaginary(pair)];
      const std::complex<double> newest(at_newest[pair], at_newest[pairs.count + pair]);
      const auto rotated = std::complex<double>(real, imaginary) * newest * rotation.mean[pair];
      real = static_cast<float>(rotated.real());
      imaginary = static_cast<float>(rotated.imag());
    }
  }

  QueryCentres centres_{PolicyModel{}};
  std::vector<float> weights_;
  std::vector<std::shared_ptr<const Rotation>> rotations_;  // [KV heads of all layers]
  std::vector<int> members_;                                // likewise: query heads
};

}  // namespace

PALIMPSEST_POLICY(triattention, TriAttention,
                  "expected attention from the model's mean queries, 1 to 65,536 tokens ahead (arXiv 2604.04921)")

}  // namespace palimpsest
