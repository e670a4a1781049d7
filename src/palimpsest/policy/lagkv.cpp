// Keeps tokens that differ from those after them (LagKV, arXiv 2504.04704, section 3). The text after the first 16
// tokens is cut into partitions of 128. A partition is normalised by the minimum and maximum per channel of the next
// one, once that is complete. Per token: the standard deviation over its channels, softmaxed over the partition, of the
// key plus of the value. The score is the rank inside the partition: all partitions lose the same share. A token is
// scored once; tokens without a score (the newest) rank above all others.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "palimpsest/core/score_order.h"
#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/softmax.h"

namespace palimpsest {
namespace {

constexpr Position kSinks = 16, kLag = 128;
constexpr float kUnscored = 2;  // ranks are in (0, 1]

bool is_scored(float score) {
  return score > 0 && score < kUnscored;
}

Position part_of(Position position) {
  return position < kSinks ? -1 : (position - kSinks) / kLag;
}

// Adds to `sum` the softmax over rows [begin, end) of the deviation of their channels, normalised by rows [end, next).
void add_deviations(const Rows& rows, int begin, int end, int next, std::span<float> sum) {
  const auto width = static_cast<std::size_t>(rows.width);
  thread_local std::vector<float> low, range, deviation, normalised, ones;
  low.assign(width, std::numeric_limits<float>::infinity());
  range.assign(width, -std::numeric_limits<float>::infinity());
  for (int i = end; i < next; ++i)
    for (std::size_t d = 0; d < width; ++d) {
      low[d] = std::min(low[d], rows[i][d]);
      range[d] = std::max(range[d], rows[i][d]);
    }
  for (std::size_t d = 0; d < width; ++d)
    range[d] = std::max(range[d] - low[d], std::numeric_limits<float>::min());  // constant channels: no division by 0

  deviation.clear();
  normalised.resize(width);
  ones.assign(width, 1);
  for (int i = begin; i < end; ++i) {
    for (std::size_t d = 0; d < width; ++d) normalised[d] = (rows[i][d] - low[d]) / range[d];
    const float mean = dot(normalised, ones) / static_cast<float>(width);
    for (float& x : normalised) x -= mean;
    deviation.push_back(std::sqrt(dot(normalised, normalised) / std::max(1.0F, static_cast<float>(width) - 1)));
  }
  softmax(deviation);
  for (std::size_t i = 0; i < deviation.size(); ++i) sum[i] += deviation[i];
}

class LagKv final : public Policy {
 public:
  Signals signals() const override { return {.keys = Keys{}, .values = Values{}, .ordered = true}; }

  // Rows are read once in 128 tokens: when a partition is complete, and the one before it has no scores.
  bool reads_rows(const PositionView& position, std::span<const float> score) const override {
    Position newest = 0;
    for (std::size_t i = 0; i < score.size(); ++i)
      if (position[i] != kNoPosition) newest = std::max(newest, position[i]);
    const Position end = kSinks + (part_of(newest + 1) - 1) * kLag;  // of the partitions before complete ones
    for (std::size_t i = 0; i < score.size(); ++i)
      if (position[i] != kNoPosition && position[i] >= kSinks && position[i] < end && !is_scored(score[i])) return true;
    return false;
  }

  void score(const HeadView& head, std::span<float> score) const override {
    const int count = static_cast<int>(score.size());
    const auto end_of = [&](int begin) {  // of the partition that begins there
      const Position last = kSinks + (part_of(head.position[at(begin)]) + 1) * kLag;
      int end = begin;
      while (end < count && head.position[at(end)] < last) ++end;
      return end;
    };
    for (int begin = 0, end = 0; begin < count; begin = end) {
      end = end_of(begin);
      const Position part = part_of(head.position[at(begin)]);
      if (is_scored(score[at(begin)])) continue;
      const int next = end < count ? end_of(end) : end;
      // The next partition is complete: its last token is in the cache, or tokens after it are.
      const bool lag_complete = next > end && part_of(head.position[at(end)]) == part + 1 &&
                                (next < count || (head.position[at(next - 1)] - kSinks) % kLag == kLag - 1);
      if (part < 0 || !lag_complete)
        std::fill(score.begin() + begin, score.begin() + end, kUnscored);
      else
        rank_part(head, begin, end, next, score.subspan(at(begin), at(end - begin)));
    }
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  static void rank_part(const HeadView& head, int begin, int end, int next, std::span<float> score) {
    thread_local std::vector<float> sum;
    thread_local std::vector<std::size_t> order;
    assert(!head.keys.empty() && "reads_rows()");
    sum.assign(score.size(), 0);
    add_deviations(head.keys, begin, end, next, sum);
    add_deviations(head.values, begin, end, next, sum);
    order.resize(sum.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, score_below<float>, [&](std::size_t i) { return sum[i]; });
    for (std::size_t rank = 0; rank < order.size(); ++rank)
      score[order[rank]] = static_cast<float>(rank + 1) / static_cast<float>(order.size());
  }
};

}  // namespace

PALIMPSEST_POLICY(lagkv, LagKv, "difference from the 128 tokens after it (LagKV, arXiv 2504.04704)")

}  // namespace palimpsest
