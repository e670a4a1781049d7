// LagKV against its paper's formula (arXiv 2504.04704, section 3) in double precision and plain loops.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/policy/random_head.h"

namespace palimpsest::testing {
namespace {

constexpr std::size_t kSinks = 16, kLag = 128;

// Softmax over a part's tokens of the (unbiased) standard deviation over channels, min-max normalised by the next part.
std::vector<double> part_scores(const Matrix& rows, std::size_t begin) {
  const std::size_t width = rows[0].size(), next = begin + kLag;
  std::vector<double> score;
  double sum = 0;
  for (std::size_t t = begin; t < next; ++t) {
    std::vector<double> x;
    for (std::size_t d = 0; d < width; ++d) {
      double low = INFINITY, high = -INFINITY;
      for (std::size_t u = next; u < next + kLag; ++u) {
        low = std::min(low, rows[u][d]);
        high = std::max(high, rows[u][d]);
      }
      x.push_back((rows[t][d] - low) / (high - low));
    }
    double mean = 0, squares = 0;
    for (const double y : x) mean += y / static_cast<double>(width);
    for (const double y : x) squares += (y - mean) * (y - mean);
    score.push_back(std::exp(std::sqrt(squares / static_cast<double>(width - 1))));
    sum += score.back();
  }
  for (double& s : score) s /= sum;
  return score;
}

std::vector<double> golden(const RandomHead& head, std::size_t parts) {  // ranks within the parts; 2: not scored yet
  std::vector<double> out(head.k.size(), 2);
  for (std::size_t p = 0; p < parts; ++p) {
    const std::size_t begin = kSinks + p * kLag;
    const std::vector<double> k = part_scores(head.k, begin), v = part_scores(head.v, begin);
    for (std::size_t i = 0; i < kLag; ++i) {
      std::size_t below = 0;
      for (std::size_t j = 0; j < kLag; ++j) below += k[j] + v[j] < k[i] + v[i] ? 1 : 0;
      out[begin + i] = static_cast<double>(below + 1) / static_cast<double>(kLag);
    }
  }
  return out;
}

TEST(LagKv, RanksEachPartAgainstTheNext) {
  const auto policy = make_policy("lagkv");
  for (const auto& [dim, value_dim] : {std::pair{64, 64}, std::pair{80, 96}, std::pair{3, 5}})
    for (const std::size_t tokens :
         {std::size_t{10}, kSinks + kLag, kSinks + 2 * kLag - 1, kSinks + 2 * kLag, std::size_t{700}}) {
      const RandomHead head(static_cast<int>(tokens), dim, value_dim,
                            static_cast<unsigned>(tokens) + static_cast<unsigned>(dim));
      std::vector<float> score(tokens, 0);
      policy->score(head.view(), score);
      const std::size_t parts = tokens < kSinks + 2 * kLag ? 0 : (tokens - kSinks) / kLag - 1;
      const std::vector<double> expected = golden(head, parts);
      for (std::size_t i = 0; i < tokens; ++i)
        EXPECT_FLOAT_EQ(score[i], static_cast<float>(expected[i])) << tokens << " " << i;
    }
}

// A score does not change after it was computed, whatever is evicted.
TEST(LagKv, KeptTokensAreNotScoredAgain) {
  const RandomHead head(700, 16, 16, 3);
  const auto policy = make_policy("lagkv");
  std::vector<float> score(700, 0);
  HeadView view = head.view();
  policy->score(view, score);
  const std::vector<float> before = score;
  // Evicts every other token of the first part.
  RandomHead less = head;
  std::vector<float> scores_left;
  less.position.clear();
  less.keys.clear();
  less.values.clear();
  for (std::size_t i = 0; i < 700; ++i) {
    if (i >= kSinks && i < kSinks + kLag && i % 2 == 1) continue;
    less.position.push_back(head.position[i]);
    less.keys.insert(less.keys.end(), head.keys.begin() + static_cast<std::ptrdiff_t>(16 * i),
                     head.keys.begin() + static_cast<std::ptrdiff_t>(16 * (i + 1)));
    less.values.insert(less.values.end(), head.values.begin() + static_cast<std::ptrdiff_t>(16 * i),
                       head.values.begin() + static_cast<std::ptrdiff_t>(16 * (i + 1)));
    scores_left.push_back(before[i]);
  }
  const int left = static_cast<int>(less.position.size());
  std::vector<float> again = scores_left;
  policy->score({.position = less.position,
                 .keys = {less.keys.data(), left, 16, 16},
                 .values = {less.values.data(), left, 16, 16}},
                again);
  EXPECT_EQ(again, scores_left);
}

TEST(LagKv, RowsAreReadOnlyWhereAPartIsComplete) {
  constexpr int kTokens = 700, kDim = 8;
  const RandomHead head(kTokens, kDim, kDim, 4);
  const auto policy = make_policy("lagkv");
  std::vector<float> always, when_asked;
  int reads = 0;
  for (int count = 1; count <= kTokens; ++count) {
    always.push_back(0);
    when_asked.push_back(0);
    const std::span position = std::span(head.position).first(static_cast<std::size_t>(count));
    const HeadView rows = {.position = position,
                           .keys = {head.keys.data(), count, kDim, kDim},
                           .values = {head.values.data(), count, kDim, kDim}};
    const bool read = policy->reads_rows(position, when_asked);
    reads += read;
    policy->score(rows, always);
    policy->score(read ? rows : HeadView{.position = position}, when_asked);
    ASSERT_EQ(when_asked, always) << count;
  }
  EXPECT_EQ(reads, (kTokens - static_cast<int>(kSinks)) / static_cast<int>(kLag) - 1);
}

TEST(LagKv, AChannelThatNeverChangesIsNoNumberNowhere) {
  const std::vector<float> zero(16 + 3 * 128, 0.0F);
  std::vector<Position> position(zero.size());
  std::iota(position.begin(), position.end(), Position{0});
  std::vector<float> score(zero.size(), 0);
  const Rows rows = {zero.data(), static_cast<int>(zero.size()), 1, 1};
  make_policy("lagkv")->score({.position = position, .keys = rows, .values = rows}, score);
  for (const float x : score) EXPECT_FALSE(std::isnan(x));
}

}  // namespace
}  // namespace palimpsest::testing
