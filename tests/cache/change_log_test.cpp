// What a reader makes of a table's log is what the table holds, whatever happens to the table.
#include "palimpsest/cache/change_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "palimpsest/cache/slots.h"

namespace palimpsest::testing {
namespace {

// Keeps the relative positions of a table by its log: all of them at a new epoch.
class Reader {
 public:
  bool look(const SlotTable& table) {  // whether it looked at changed slots only
    const SlotsView view = table.view();
    const bool known = view.changes->epoch() == epoch_;
    if (known)
      for (const int slot : view.changes->changed().subspan(changes_))
        seen_[static_cast<std::size_t>(slot)] = view.relative[slot];
    else
      seen_.assign(view.relative, view.relative + view.slots);
    epoch_ = view.changes->epoch();
    changes_ = view.changes->changed().size();
    return known;
  }
  bool holds(const SlotTable& table) const {
    const SlotsView view = table.view();
    return std::ranges::equal(seen_, std::span(view.relative, static_cast<std::size_t>(view.slots)));
  }

 private:
  std::uint64_t epoch_ = 0;
  std::size_t changes_ = 0;
  std::vector<std::int32_t> seen_;
};

TEST(ChangeLog, HasAllThatChanged) {
  std::mt19937 random(7);
  for (const Mechanism mechanism :
       {Mechanism::kInPlace, Mechanism::kShift, Mechanism::kGather, Mechanism::kBlock, Mechanism::kAppend}) {
    SlotTable table(16, mechanism, false);
    Reader reader;
    std::vector<Move> moves;
    int known = 0;
    for (int step = 0; step < 3000; ++step) {
      std::vector<int> occupied;
      for (int slot = 0; slot < table.slots(); ++slot)
        if (table.position(slot) != kNoPosition) occupied.push_back(slot);
      switch (random() % 12) {
        case 0:
          table.release_empty_pages(static_cast<int>(random() % 20));
          break;
        case 1:
          if (!table.inserted().empty()) table.undo(1);
          break;
        case 2:
          table.set_next(table.next() + static_cast<Position>(random() % 2 == 0 ? 3 : Position{1} << 29));
          break;
        case 3:
          if (mechanism == Mechanism::kInPlace || mechanism == Mechanism::kAppend) table.defragment(0, moves);
          break;
        case 4: {
          const SlotTable copy = table;
          EXPECT_NE(copy.view().changes->epoch(), table.view().changes->epoch());
          if (random() % 40 == 0) table.clear();
          break;
        }
        default:
          if (mechanism != Mechanism::kBlock && occupied.size() > 60) {
            std::ranges::shuffle(occupied, random);
            occupied.resize(1 + random() % 3);
            table.drop(occupied, moves);
          }
          table.insert(1 + static_cast<int>(random() % 3));
      }
      moves.clear();
      if (random() % 3 == 0) continue;  // readers do not look after each change
      known += reader.look(table);
      ASSERT_TRUE(reader.holds(table)) << "mechanism " << static_cast<int>(mechanism) << ", step " << step;
    }
    EXPECT_GT(known, 500);
  }
}

}  // namespace
}  // namespace palimpsest::testing
