#include "palimpsest/evict/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace palimpsest::testing {
namespace {

// Sort all, take the first: what select_lowest must be the same as.
std::vector<int> naive(const std::vector<float>& score, const std::vector<Position>& position, Guard guard, int count) {
  std::vector<int> all(score.size());
  std::iota(all.begin(), all.end(), 0);
  std::erase_if(all, [&](int s) { return !guard.admits(position[static_cast<std::size_t>(s)]); });
  const auto key = [&](int s) {
    return std::pair(score[static_cast<std::size_t>(s)], position[static_cast<std::size_t>(s)]);
  };
  std::ranges::sort(all, {}, key);
  all.resize(static_cast<std::size_t>(count));
  std::ranges::sort(all, {}, [&](int s) { return position[static_cast<std::size_t>(s)]; });
  return all;
}

TEST(SelectLowest, SameAsASort) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  std::vector<int> chosen;
  for (int round = 0; round < 3000; ++round) {
    const int slots = 1 + below(80);
    std::vector<Position> position(static_cast<std::size_t>(slots));
    std::iota(position.begin(), position.end(), below(3));
    std::ranges::shuffle(position, random);
    for (auto& p : position)
      if (below(5) == 0) p = kNoPosition;
    std::vector<float> score(position.size());
    const int values = 1 + below(40);  // few values: many ties
    for (auto& s : score) s = static_cast<float>(below(values)) - 5.0F;
    std::vector<std::int32_t> whens;
    for (const Position p : position) whens.push_back(p == kNoPosition ? kDead : static_cast<std::int32_t>(p));
    const Guard guard{.first = below(6), .last = slots - below(10)};
    const auto admitted = static_cast<int>(std::ranges::count_if(position, [&](auto p) { return guard.admits(p); }));
    for (int count : {0, 1, 2, admitted / 2, admitted - 1, admitted}) {
      if (count < 0 || count > admitted) continue;
      const auto expected = naive(score, position, guard, count);
      for (const bool fits : {false, true}) {
        select_lowest({score, position, fits ? whens.data() : nullptr}, guard, count, chosen);
        ASSERT_EQ(chosen, expected) << "round " << round << ", count " << count;
      }
    }
  }
}

TEST(SelectLowest, OfEqualScoresTheOldestLeaves) {
  const std::vector<Position> position = {9, 2, 7, 1, 5};
  const std::vector<float> score(5, 1.0F);
  const std::vector<std::int32_t> when = {9, 2, 7, 1, 5};
  std::vector<int> chosen;
  select_lowest({score, position}, {.first = 2, .last = 9}, 1, chosen);
  EXPECT_EQ(chosen, std::vector<int>{1});
  EXPECT_EQ(select_lowest({score, position, when.data()}, {.first = 2, .last = 9}), 1);
  select_lowest({score, position}, {.first = 2, .last = 9}, 2, chosen);
  EXPECT_EQ(chosen, (std::vector<int>{1, 4}));
}

TEST(SelectLowest, InfiniteScoresAreScores) {
  const std::vector<Position> position = {0, 1, 2};
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<int> chosen;
  const std::vector<float> high = {inf, inf, inf}, mixed = {0, 1, -inf};
  const std::vector<std::int32_t> when = {0, 1, 2};
  select_lowest({high, position}, {.first = 1, .last = 3}, 1, chosen);
  EXPECT_EQ(chosen, std::vector<int>{1});
  EXPECT_EQ(select_lowest({high, position, when.data()}, {.first = 1, .last = 3}), 1);
  select_lowest({mixed, position}, {.first = 0, .last = 3}, 1, chosen);
  EXPECT_EQ(chosen, std::vector<int>{2});
  EXPECT_EQ(select_lowest({mixed, position, when.data()}, {.first = 0, .last = 3}), 2);
}

}  // namespace
}  // namespace palimpsest::testing
