#include "palimpsest/evict/out_of_window.h"

#include <gtest/gtest.h>

#include <vector>

namespace palimpsest::testing {
namespace {

// Also tokens 2^30 behind the base, whose relative positions are saturated.
TEST(Unseen, CountsTheTokensOfARangeHoweverLongTheText) {
  SlotTable table(16, Mechanism::kInPlace, false);
  std::vector<Move> moves;
  table.insert(40);
  const auto check = [&] {
    const Position next = table.next();
    for (const Position first : {Position{0}, Position{4}, Position{39}, next - 30, next - 7, next})
      for (const Position last : {Position{0}, Position{17}, Position{60}, next / 2, next - 20, next - 1, next}) {
        int expected = 0;
        for (int slot = 0; slot < table.slots(); ++slot)
          expected += PositionRange{first, last}.contains(table.position(slot)) ? 1 : 0;
        ASSERT_EQ(count_out_of_window(table, {first, last}), expected) << first << " to " << last << " of " << next;
      }
  };
  check();
  for (int i = 0; i < 6; ++i) {
    table.set_next(table.next() + (Position{1} << 29) + 3 * i);
    table.insert(20);
    const int victims[] = {i, 20 + i};
    table.drop(victims, moves);
    check();
  }
}

}  // namespace
}  // namespace palimpsest::testing
