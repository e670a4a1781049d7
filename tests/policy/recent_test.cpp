#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "palimpsest/policy/policy.h"

namespace palimpsest::testing {
namespace {

// The score is the position (StreamingLLM, section 3.2: the window is the newest tokens).
TEST(Recent, ScoreIsThePosition) {
  const std::vector<Position> position = {17, 3, 0, kNoPosition, 16777215, 4};
  std::vector<float> score(position.size(), 42.0F);
  make_policy("recent")->score({.position = position}, score);
  const std::vector<float> golden = {17, 3, 0, -1, 16777215, 4};
  EXPECT_EQ(score, golden);
}

// Beyond 2^24, positions are rounded to floats; their order stays.
TEST(Recent, NeverFallsWithPositionHoweverLongTheStream) {
  std::vector<Position> position;
  for (Position p = (Position{1} << 31) - 3000; p < (Position{1} << 31) + 3000; ++p) position.push_back(p);
  std::vector<float> score(position.size());
  make_policy("recent")->score({.position = position}, score);
  EXPECT_TRUE(std::ranges::is_sorted(score));
}

// With the positions of a slot table: the same order; saturated tokens tie.
TEST(Recent, RanksRelativePositionsAlike) {
  const std::vector<std::int32_t> relative = {-7,         5,       PositionView::kSaturated,
                                              kEmptySlot, 1 << 24, PositionView::kSaturated};
  const std::vector<SaturatedToken> saturated = {{2, 30}, {5, 10}};
  const PositionView position(relative, Position{1} << 40, saturated);
  EXPECT_EQ(std::vector<Position>(position.begin(), position.end()),
            (std::vector<Position>{(Position{1} << 40) - 7, (Position{1} << 40) + 5, 30, kNoPosition,
                                   (Position{1} << 40) + (1 << 24), 10}));
  std::vector<float> score(relative.size());
  make_policy("recent")->score({.position = position}, score);
  EXPECT_LT(score[2], score[0]);
  EXPECT_EQ(score[2], score[5]);
  EXPECT_LT(score[0], score[1]);
  EXPECT_LT(score[1], score[4]);
}

TEST(Recent, AsksForPositionsOnly) {
  EXPECT_TRUE(make_policy("recent")->signals().positions_only());
}

}  // namespace
}  // namespace palimpsest::testing
