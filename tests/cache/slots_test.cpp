// Explicit cases beside the random comparison: which slots are taken, which pages are mapped, far positions.
#include "palimpsest/cache/slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace palimpsest::testing {
namespace {

using Slots = std::vector<int>;

Slots inserted(const SlotTable& table) {
  return {table.inserted().begin(), table.inserted().end()};
}

Slots range(int first, int last) {
  Slots slots(static_cast<std::size_t>(last - first));
  std::iota(slots.begin(), slots.end(), first);
  return slots;
}

class SlotTables : public ::testing::Test {
 protected:
  void drop(const Slots& victims) { table.drop(victims, moves); }
  SlotTable table{16, Mechanism::kInPlace, true};
  std::vector<Move> moves;
};

TEST_F(SlotTables, TheNewTokenTakesTheVictimsSlot) {
  table.insert(32);
  for (const Slots& victims : {Slots{5}, Slots{31, 0, 7}, Slots{9, 8}}) {
    drop(victims);
    EXPECT_TRUE(table.inserted().empty());
    table.insert(static_cast<int>(victims.size()));
    EXPECT_EQ(inserted(table), victims);
  }
  EXPECT_EQ(table.slots(), 32);
  EXPECT_TRUE(moves.empty());
}

TEST_F(SlotTables, UndoGivesTheSameSlotsAgain) {
  table.insert(30);
  drop({3, 17, 4});
  table.insert(4);
  const Slots taken = inserted(table);
  EXPECT_EQ(taken, (Slots{30, 31, 3, 17}));  // free slots form a queue: those never used were first
  table.undo(3);
  EXPECT_EQ(inserted(table), Slots{30});
  EXPECT_EQ(table.next(), 31);
  table.insert(3);
  EXPECT_EQ(inserted(table), (Slots{31, 3, 17}));
}

TEST_F(SlotTables, DropAndInsertByTurnsNeverHandPagesToAndFro) {
  table.insert(3 * 16 - 1);
  for (int step = 0; step < 1000; ++step) {
    const auto oldest = std::ranges::min_element(table.position(), {},
                                                 [](Position p) { return p == kNoPosition ? Position{1} << 40 : p; });
    drop({static_cast<int>(oldest - table.position().begin())});
    ASSERT_TRUE(table.release_empty_pages(1).empty()) << step;
    ASSERT_TRUE(table.insert(1).empty()) << step;
  }
}

TEST_F(SlotTables, EmptyPagesAreUnmappedWhileEnoughSlotsStayFree) {
  table.insert(5 * 16);
  drop(range(16, 64));  // pages 1, 2, 3
  EXPECT_TRUE(table.release_empty_pages(33).empty());
  const auto unmapped = table.release_empty_pages(32);
  EXPECT_EQ(Slots(unmapped.begin(), unmapped.end()), Slots{3});
  table.release_empty_pages(0);
  EXPECT_EQ(table.mapped_pages(), 2);
  EXPECT_EQ(table.slots(), 80);  // page 4 is still mapped
  EXPECT_FALSE(table.mapped(1) || table.mapped(2) || table.mapped(3));
  EXPECT_EQ(table.free_slots(), 0);

  EXPECT_EQ(table.pages_to_map(17), 2);
  const auto mapped = table.insert(17);  // unmapped pages are used before new ones
  EXPECT_EQ(Slots(mapped.begin(), mapped.end()), (Slots{1, 2}));
  EXPECT_EQ(inserted(table), range(16, 33));
  EXPECT_EQ(table.slots(), 80);
}

TEST_F(SlotTables, UnmappedPagesAtTheEndAreCutOff) {
  table.insert(4 * 16);
  drop(range(16, 32));
  table.release_empty_pages(0);
  EXPECT_EQ(table.slots(), 64);
  drop(range(32, 64));
  table.release_empty_pages(0);
  EXPECT_EQ(table.slots(), 16);  // the hole at page 1 is at the end now
  drop(range(0, 16));
  table.release_empty_pages(0);
  EXPECT_EQ(table.slots(), 0);
  table.insert(1);
  EXPECT_EQ(inserted(table), Slots{0});
}

TEST_F(SlotTables, GatheringUpEmptiesTheLastPages) {
  table.insert(5 * 16);
  Slots odd;
  for (int slot = 1; slot < 80; slot += 2) odd.push_back(slot);
  drop(odd);  // 40 occupied, 40 free, no page empty
  EXPECT_TRUE(table.release_empty_pages(1).empty());
  table.insert(1);
  ASSERT_EQ(inserted(table), Slots{1});
  table.score()[64] = 7;
  table.defragment(8, moves);  // 39 free: one page can be unmapped
  ASSERT_EQ(moves.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(moves[i].from, 64 + 2 * static_cast<int>(i));
    EXPECT_EQ(moves[i].to, 3 + 2 * static_cast<int>(i));
    EXPECT_EQ(table.position()[static_cast<std::size_t>(moves[i].to)], moves[i].from);
  }
  EXPECT_EQ(table.score()[3], 7);
  EXPECT_EQ(table.rank()[3], 32);
  const auto unmapped = table.release_empty_pages(8);
  EXPECT_EQ(Slots(unmapped.begin(), unmapped.end()), Slots{4});
  EXPECT_EQ(table.free_slots(), 23);
  table.defragment(8, moves);
  EXPECT_TRUE(moves.empty());
  table.insert(23);
  EXPECT_EQ(table.slots(), 64);
  EXPECT_EQ(table.free_slots(), 0);
}

// A token that moves is still one of the last insert: it can be undone.
TEST_F(SlotTables, GatheringUpKeepsTheFresh) {
  table.insert(40);
  drop(range(0, 20));
  table.insert(30);
  drop(range(20, 38));
  table.insert(2);
  const Slots newest = inserted(table);
  table.defragment(0, moves);
  Slots expected = newest;
  for (const Move& moved : moves) std::ranges::replace(expected, moved.from, moved.to);
  EXPECT_EQ(inserted(table), expected);
  EXPECT_NE(inserted(table), newest);
  const int occupied = table.occupied();
  table.undo(2);
  EXPECT_EQ(table.occupied(), occupied - 2);
}

TEST_F(SlotTables, RanksCountTheOlderLiveTokens) {
  table.insert(6);
  drop({0, 3});
  table.insert(1);
  EXPECT_EQ(Slots(table.rank().begin(), table.rank().begin() + 8), (Slots{-1, 0, 1, -1, 2, 3, 4, -1}));
  drop({2});
  EXPECT_EQ(Slots(table.rank().begin(), table.rank().begin() + 8), (Slots{-1, 0, -1, -1, 1, 2, 3, -1}));
}

TEST_F(SlotTables, ShiftMovesSurvivorsDownInOrder) {
  table = SlotTable(16, Mechanism::kShift, false);
  table.insert(6);
  drop({4, 1});
  ASSERT_EQ(moves.size(), 3u);
  const int want[][2] = {{2, 1}, {3, 2}, {5, 3}};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(moves[i].from, want[i][0]);
    EXPECT_EQ(moves[i].to, want[i][1]);
  }
  table.insert(1);
  EXPECT_EQ(inserted(table), Slots{4});
}

// Streams of more than 2^31 tokens: relative positions fit 32 bits, the newest are distinct, the oldest saturate.
TEST_F(SlotTables, WhenStaysSmallHoweverLongTheStream) {
  table.insert(8);
  EXPECT_EQ(table.base(), 0);
  for (Position far : {(Position{1} << 30) - 3, (Position{1} << 30) + 5, (Position{1} << 31) - 2,
                       (Position{1} << 31) + 7, Position{100'000'000'000}}) {
    table.set_next(far);
    table.insert(4);
    const SlotsView view = table.view();
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(table.position()[static_cast<std::size_t>(view.inserted[i])], far + i);
      EXPECT_EQ(view.relative[view.inserted[i]], far + i - table.base());
      EXPECT_GE(view.relative[view.inserted[i]], 0);
      EXPECT_LE(view.relative[view.inserted[i]], 1 << 30);
    }
    for (int slot = 0; slot < 8; ++slot) {  // sinks stay before the rest at any distance
      EXPECT_LE(view.relative[slot], table.relative_position(7));
      EXPECT_LT(view.relative[slot], view.relative[view.inserted[0]]);
      EXPECT_GE(view.relative[slot], SlotTable::kSaturated);
    }
  }
  EXPECT_EQ(table.view().relative[0], SlotTable::kSaturated);
}

// Saturated tokens keep their positions when their slots move or other tokens are dropped.
TEST_F(SlotTables, TokensFarBehindKeepTheirPositions) {
  constexpr Position kFar = Position{3} << 30;
  for (const Mechanism mechanism : {Mechanism::kInPlace, Mechanism::kShift, Mechanism::kBlock, Mechanism::kAppend}) {
    for (const bool edited : {false, true}) {
      table = SlotTable(16, mechanism, true, 1);
      table.insert(40);
      std::vector<Position> expected(40);
      std::iota(expected.begin(), expected.end(), 0);
      const auto look = [&](const char* when) {
        std::vector<Position> found;
        for (const Position p : table.position())
          if (p != kNoPosition) found.push_back(p);
        std::ranges::sort(found);
        ASSERT_EQ(found, expected) << when << " of mechanism " << static_cast<int>(mechanism);
        ASSERT_EQ(table.fault(), nullptr) << when;
        for (int slot = 0; slot < table.slots(); ++slot)
          ASSERT_EQ(table.position(slot), table.position()[static_cast<std::size_t>(slot)]);
      };
      const auto insert = [&](int count) {
        for (int i = 0; i < count; ++i) expected.push_back(table.next() + i);
        table.insert(count);
      };
      const auto drop_at = [&](std::initializer_list<Position> positions) {
        std::vector<int> victims;
        for (const Position p : positions) {
          victims.push_back(static_cast<int>(std::ranges::find(table.position(), p) - table.position().begin()));
          std::erase(expected, p);
        }
        table.drop(victims, moves);
      };
      look("new");
      table.set_next(kFar);
      insert(20);
      look("far");
      EXPECT_EQ(table.view().relative[0], SlotTable::kSaturated);
      drop_at({1, 17, 18, 39, kFar + 3});
      look("dropped");
      insert(6);
      drop_at({0, kFar});
      look("dropped again");
      table.defragment(0, moves);
      look("gathered");
      if (edited) {  // shifts the end of the old tokens to the new ones, and back
        table.apply({.shift_range = {20, 40}, .shift_by = kFar - 100}, moves);
        for (Position& p : expected) p += p >= 20 && p < 40 ? kFar - 100 : 0;
        std::ranges::sort(expected);
        look("shifted");
        table.apply({.shift_range = {kFar - 80, kFar - 60}, .shift_by = 100 - kFar}, moves);
        for (Position& p : expected) p -= p >= kFar - 80 && p < kFar - 60 ? kFar - 100 : 0;
        std::ranges::sort(expected);
        look("shifted back");
        table.apply({.end = 60}, moves);  // the text ends before the base
        std::erase_if(expected, [](Position p) { return p >= 60; });
      }
      std::vector<std::byte> bytes;
      ByteWriter out([&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); });
      if (!edited) {
        table.save(out);
        table = SlotTable(16, mechanism, true, 1);
        ByteReader in(bytes, "table");
        table.load(in);
        look("read");
        table.set_next(2 * kFar);
        insert(1);
        look("farther");
      }
      table.clear();
      EXPECT_EQ(table.bytes(), 0u);
    }
  }
}

TEST_F(SlotTables, ASlotTakesTwelveBytes) {
  EXPECT_EQ(SlotTable::slot_bytes(true, 0), 12u);
  EXPECT_EQ(SlotTable::slot_bytes(false, 0), 8u);
  EXPECT_EQ(SlotTable::slot_bytes(true, 3), 24u);
}

TEST_F(SlotTables, TheQueueKeepsItsOrder) {
  SlotQueue queue;
  std::vector<int> model;
  for (int i = 0, next = 0; i < 20000; ++i) {
    const int what = (i * 7919) % 11;
    if (what < 5) {
      queue.push_back(next);
      model.push_back(next++);
    } else if (what < 7) {
      queue.push_front(next);
      model.insert(model.begin(), next++);
    } else if (what < 10) {
      if (model.empty()) continue;
      ASSERT_EQ(queue.pop_front(), model.front());
      model.erase(model.begin());
    } else if (i % 13 == 0) {
      const auto gone = [](int slot) { return slot % 3 == 0; };
      queue.remove_if(gone);
      std::erase_if(model, gone);
    }
    ASSERT_EQ(queue.size(), static_cast<int>(model.size()));
  }
}

}  // namespace
}  // namespace palimpsest::testing
