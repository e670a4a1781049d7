#include "palimpsest/cache/merged.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace palimpsest::testing {
namespace {

// The tokens with the highest scores stay, of equal ones the younger. NaN is the lowest score at any index.
TEST(MergedTokens, KeepsTheHighestScoresAndNanLast) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (int nan = 0; nan < 6; ++nan)
    for (const std::size_t kept : {std::size_t{5}, std::size_t{3}}) {
      MergedTokens merged(0);
      for (int i = 0; i < 6; ++i)
        merged.add({.position = i, .slot = 0, .factor = 1, .score = i == nan ? kNan : static_cast<float>(i % 4)}, {});
      merged.keep_best(kept);
      std::vector<int> expected = {3, 2, 5, 1, 4, 0};  // highest score first, then the youngest
      std::erase(expected, nan);
      expected.resize(kept);
      std::ranges::sort(expected);
      std::vector<int> positions;
      for (const MergedToken& token : merged.tokens()) positions.push_back(static_cast<int>(token.position));
      EXPECT_EQ(positions, expected) << "NaN at " << nan;
    }
}

}  // namespace
}  // namespace palimpsest::testing
