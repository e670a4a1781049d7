#include "palimpsest/evict/by_age.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace palimpsest::testing {
namespace {

std::vector<int> sorted(const std::vector<Position>& position) {
  std::vector<int> order;
  for (std::size_t slot = 0; slot < position.size(); ++slot)
    if (position[slot] != kNoPosition) order.push_back(static_cast<int>(slot));
  std::ranges::sort(order, {}, [&](int slot) { return position[static_cast<std::size_t>(slot)]; });
  return order;
}

TEST(ByAge, AsASortWouldHaveIt) {
  std::mt19937_64 random(1);
  for (const int slots : {0, 1, 2, 16, 255, 1000})
    for (const std::uint64_t span : {1ULL << 4, 1ULL << 8, 1ULL << 12, 1ULL << 33, 1ULL << 62})
      for (const std::uint64_t first : {0ULL, 1ULL << 40}) {
        std::vector<Position> position;
        for (int slot = 0; slot < slots; ++slot) {
          const auto p = static_cast<Position>(first + random() % span);
          const bool is_new = std::ranges::find(position, p) == position.end();
          position.push_back(random() % 5 == 0 || !is_new ? kNoPosition : p);
        }
        std::vector<int> order = {7};
        order_by_age(position, order);
        EXPECT_EQ(order, sorted(position)) << slots << " slots, positions within " << span << " of " << first;
      }
}

}  // namespace
}  // namespace palimpsest::testing
