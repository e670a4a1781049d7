#include "palimpsest/evict/select.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace palimpsest::testing {
namespace {

// Positions as in a slot table. Those below `old` are 2^31 tokens before the others, so that they saturate.
struct Relative {
  static constexpr Position kFar = Position{1} << 31;

  Relative(const std::vector<Position>& positions, Position base = 0, Position old = 0) : base(base), old(old) {
    for (const Position p : positions) {
      if (p == kNoPosition) {
        relative.push_back(kEmptySlot);
        continue;
      }
      relative.push_back(static_cast<std::int32_t>(std::max<Position>(of(p) - base, PositionView::kSaturated)));
      if (relative.back() == PositionView::kSaturated)
        saturated.push_back({static_cast<int>(relative.size()) - 1, of(p)});
    }
  }
  Position of(Position p) const { return p < old || base == 0 ? p : p + kFar; }
  Guard of(Guard guard) {
    pins.clear();
    for (const PositionRange& pin : guard.pins) pins.push_back({of(pin.first), of(pin.last)});
    return {.first = of(guard.first), .last = of(guard.last), .pins = pins};
  }
  PositionView view() const { return {relative, base, saturated}; }

  Position base, old;
  std::vector<std::int32_t> relative;
  std::vector<SaturatedToken> saturated;
  std::vector<PositionRange> pins;
};

// The oracle of select_lowest: sorts all, takes the first.
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
    std::vector<PositionRange> pins;
    for (Position p = below(20); pins.size() < 3 && below(2) == 0; p = pins.back().last + 1 + below(9))
      pins.push_back({p, p + 1 + below(9)});
    const Guard guard{.first = below(6), .last = slots - below(10), .pins = pins};
    Relative texts[] = {
        {position}, {position, Relative::kFar + below(9)}, {position, Relative::kFar, 1 + below(slots)}};
    const auto admitted = static_cast<int>(std::ranges::count_if(position, [&](auto p) { return guard.admits(p); }));
    for (int count : {0, 1, 2, admitted / 2, admitted - 1, admitted}) {
      if (count < 0 || count > admitted) continue;
      const auto expected = naive(score, position, guard, count);
      for (Relative& text : texts) {
        select_lowest({score, text.view()}, text.of(guard), count, chosen);
        ASSERT_EQ(chosen, expected) << "round " << round << ", count " << count << ", base " << text.base;
      }
    }
  }
}

TEST(SelectLowest, OfEqualScoresTheOldestLeaves) {
  const Relative text({9, 2, 7, 1, 5});
  const PositionView position = text.view();
  const std::vector<float> score(5, 1.0F);
  std::vector<int> chosen;
  select_lowest({score, position}, {.first = 2, .last = 9}, 1, chosen);
  EXPECT_EQ(chosen, std::vector<int>{1});
  EXPECT_EQ(select_lowest({score, position}, {.first = 2, .last = 9}), 1);
  select_lowest({score, position}, {.first = 2, .last = 9}, 2, chosen);
  EXPECT_EQ(chosen, (std::vector<int>{1, 4}));
}

TEST(SelectLowest, InfiniteScoresAreScores) {
  const Relative text({0, 1, 2});
  const PositionView position = text.view();
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<int> chosen;
  const std::vector<float> high = {inf, inf, inf}, mixed = {0, 1, -inf};
  select_lowest({high, position}, {.first = 1, .last = 3}, 1, chosen);
  EXPECT_EQ(chosen, std::vector<int>{1});
  EXPECT_EQ(select_lowest({high, position}, {.first = 1, .last = 3}), 1);
  select_lowest({mixed, position}, {.first = 0, .last = 3}, 1, chosen);
  EXPECT_EQ(chosen, std::vector<int>{2});
  EXPECT_EQ(select_lowest({mixed, position}, {.first = 0, .last = 3}), 2);
}

// The k-th victim by a loop over all slots: NaN before all numbers, then the lower score, then the older token.
std::vector<int> by_plain_loop(const std::vector<float>& score, const std::vector<Position>& position, Guard guard,
                               int count) {
  std::vector<int> chosen;
  for (; count > 0; --count) {
    int best = -1;
    for (int s = 0; s < static_cast<int>(score.size()); ++s) {
      const auto i = static_cast<std::size_t>(s), b = static_cast<std::size_t>(best);
      if (!guard.admits(position[i]) || std::ranges::find(chosen, s) != chosen.end()) continue;
      const bool nan = std::isnan(score[i]), best_nan = best >= 0 && std::isnan(score[b]);
      const bool equal = best >= 0 && ((nan && best_nan) || score[i] == score[b]);
      if (best < 0 || (nan && !best_nan) || (!best_nan && score[i] < score[b]) || (equal && position[i] < position[b]))
        best = s;
    }
    chosen.push_back(best);
  }
  std::ranges::sort(chosen, {}, [&](int s) { return position[static_cast<std::size_t>(s)]; });
  return chosen;
}

// Runs `body` with each instruction set that this machine has and the library is compiled for.
template <typename Body>
void on_every_target(const Body& body) {
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest((left & -left) | HWY_STATIC_TARGET);
    hwy::GetChosenTarget().DeInit();
    SCOPED_TRACE(hwy::TargetName(left & -left));
    body();
    if (::testing::Test::HasFatalFailure()) break;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

TEST(SelectLowest, IsATotalOrder) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  on_every_target([&] {
    std::mt19937 random(2);
    const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
    std::vector<int> chosen;
    for (int round = 0; round < 2000; ++round) {
      const int slots = 1 + below(round % 10 == 0 ? 700 : 90);
      std::vector<Position> position(static_cast<std::size_t>(slots));
      std::iota(position.begin(), position.end(), 0);
      std::ranges::shuffle(position, random);
      const int empty = below(4);  // tenths of the slots
      for (auto& p : position)
        if (below(10) < empty) p = kNoPosition;
      std::vector<float> special = {kNan, -kNan, kInf, -kInf, 0.0F, -0.0F, 1.0F, -1.0F, 1e38F, 1e-45F};
      special.resize(static_cast<std::size_t>(1 + below(10)));
      const int odd = round % 7 == 0 ? 100 : below(100);  // percent
      std::vector<float> score(position.size());
      for (auto& s : score)
        s = below(100) < odd ? special[static_cast<std::size_t>(below(static_cast<int>(special.size())))]
                             : static_cast<float>(below(9)) - 4;
      const Guard guard{.first = below(6), .last = slots - below(5)};
      Relative texts[] = {
          {position}, {position, Relative::kFar + below(9)}, {position, Relative::kFar, 1 + below(slots)}};
      const auto admitted = static_cast<int>(std::ranges::count_if(position, [&](auto p) { return guard.admits(p); }));
      for (int count : {1, 2, admitted / 2, admitted}) {
        if (count < 1 || count > admitted || (count > 2 && slots > 100)) continue;
        const auto expected = by_plain_loop(score, position, guard, count);
        for (Relative& text : texts) {
          select_lowest({score, text.view()}, text.of(guard), count, chosen);
          ASSERT_EQ(chosen, expected) << "round " << round << ", count " << count << ", base " << text.base;
        }
      }
    }
  });
}

// Keydiff gives NaN for infinite keys. On x86, a vector minimum with a NaN returns its second operand, which lost the
// number in the first.
TEST(SelectLowest, NanNeitherHidesALowerScoreNorStays) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  on_every_target([&] {
    for (int at = 0; at < 64; ++at) {
      std::vector<Position> positions(64);
      std::iota(positions.begin(), positions.end(), 0);
      const Relative text(positions);
      const PositionView position = text.view();
      std::vector<float> score(64, 1), all(64, kNan);
      score[static_cast<std::size_t>(at)] = kNan;
      score[static_cast<std::size_t>(63 - at)] = -1;
      ASSERT_EQ(select_lowest({score, position}, {.first = 0, .last = 64}), at);
      ASSERT_EQ(select_lowest({all, position}, {.first = at, .last = 64}), at);
    }
  });
}

TEST(SelectPages, NanIsEvictedFirst) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr int kPage = 16, kPages = 5;
  for (int with_nan = 0; with_nan < kPages; ++with_nan) {
    SlotTable table(kPage, Mechanism::kBlock, false);
    table.insert(kPage * kPages);
    std::ranges::fill(table.score(), 1.0F);
    table.score()[static_cast<std::size_t>((with_nan + 1) % kPages * kPage)] = -kInf;
    table.score()[static_cast<std::size_t>(with_nan * kPage + 3)] = kNan;
    std::vector<int> chosen, first(kPage), second(kPage);
    std::iota(first.begin(), first.end(), with_nan * kPage);
    std::iota(second.begin(), second.end(), (with_nan + 1) % kPages * kPage);
    const Guard all{.first = 0, .last = kPage * kPages};
    select_pages(table, all, 1, chosen);
    EXPECT_EQ(chosen, first);
    select_pages(table, all, 2, chosen);
    first.insert(first.end(), second.begin(), second.end());
    EXPECT_EQ(chosen, first);
  }
}

// Pages of 8 in pages of 16; a page's score as the mean, and as the ratio of the norms of all its values and keys.
TEST(SelectPages, SmallerPagesAndBothScores) {
  constexpr int kPage = 8, kPages = 6;
  SlotTable table(16, Mechanism::kBlock, false, 0, kPage);
  table.insert(kPage * kPages - 3);
  std::mt19937 random(4);
  std::exponential_distribution<float> weight(1);
  std::vector<float> squares;
  for (float& score : table.score()) score = weight(random), squares.push_back(weight(random));
  // A page whose highest score is of a short key: its mean is high, its ratio of norms is low.
  std::ranges::fill(table.score().subspan(2 * kPage, kPage), 0.5F);
  std::fill_n(squares.begin() + 2 * kPage, kPage, 1.0F);
  table.score()[2 * kPage + 3] = 60;
  squares[2 * kPage + 3] = 1e-5F;
  const Guard guard{.first = 3, .last = kPage * kPages};  // the sinks' page and the newest, not full, stay
  std::vector<double> means, norms;
  for (int page = 0; page < kPages; ++page) {
    double mean = 0, values = 0, keys = 0;
    for (std::size_t i = at(page * kPage); i < at((page + 1) * kPage); ++i) {
      mean += table.score()[i] / kPage;
      keys += squares[i];
      values += double{table.score()[i]} * table.score()[i] * squares[i];
    }
    means.push_back(mean);
    norms.push_back(std::sqrt(values / keys));
  }
  const auto lowest = [&](const std::vector<double>& by) {
    std::vector<int> order = {1, 2, 3, 4}, slots;
    std::ranges::sort(order, {}, [&](int page) { return by[at(page)]; });
    for (int page = 0; page < 2; ++page)
      for (int i = 0; i < kPage; ++i) slots.push_back(order[at(page)] * kPage + i);
    return slots;
  };
  std::vector<int> chosen;
  select_pages(table, guard, 2, chosen);
  EXPECT_EQ(chosen, lowest(means));
  select_pages(table, guard, 2, chosen, squares);
  EXPECT_EQ(chosen, lowest(norms));
  EXPECT_NE(lowest(means), lowest(norms));
}

}  // namespace
}  // namespace palimpsest::testing
