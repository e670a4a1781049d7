// Loads slot tables whose bytes break one invariant each: each must be an Error.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "palimpsest/cache/slots.h"
#include "palimpsest/core/byte_stream.h"
#include "tests/support/error_message.h"

namespace palimpsest::testing {
namespace {

constexpr int kPage = 16;

// The fields of a saved table, in the order of SlotTable::save.
struct Image {
  Position next = 0, base = 0;
  std::vector<Position> position;
  std::vector<float> score;
  std::vector<std::vector<float>> columns;
  std::vector<int> rank, page_occupied, inserted, free;
};

struct Kind {
  Mechanism mechanism;
  bool ranks = false;
  int columns = 0;
};

SlotTable table_of(const Kind& kind) {
  return {kPage, kind.mechanism, kind.ranks, kind.columns};
}

std::vector<std::byte> bytes_of(const SlotTable& table) {
  std::vector<std::byte> bytes;
  ByteWriter out([&](std::span<const std::byte> data) { bytes.insert(bytes.end(), data.begin(), data.end()); });
  table.save(out);
  return bytes;
}

Image image_of(const SlotTable& table) {
  const auto bytes = bytes_of(table);
  ByteReader in(bytes, "table");
  Image image;
  image.next = in.get<Position>();
  image.base = in.get<Position>();
  image.position = in.array<Position>();
  image.score = in.array<float>();
  for (int c = 0; c < table.columns(); ++c) image.columns.push_back(in.array<float>());
  image.rank = in.array<int>();
  image.page_occupied = in.array<int>();
  image.inserted = in.array<int>();
  image.free = in.array<int>();
  EXPECT_TRUE(in.at_end());
  return image;
}

std::vector<std::byte> bytes_of(const Image& image) {
  std::vector<std::byte> bytes;
  ByteWriter out([&](std::span<const std::byte> data) { bytes.insert(bytes.end(), data.begin(), data.end()); });
  out.put(image.next);
  out.put(image.base);
  out.array(std::span<const Position>(image.position));
  out.array(std::span<const float>(image.score));
  for (const auto& column : image.columns) out.array(std::span<const float>(column));
  for (const auto* each : {&image.rank, &image.page_occupied, &image.inserted, &image.free})
    out.array(std::span<const int>(*each));
  return bytes;
}

// The error message of loading the changed image; "": it was loaded.
std::string refusal(const Kind& kind, const SlotTable& valid, const std::function<void(Image&)>& change) {
  Image image = image_of(valid);
  change(image);
  const auto bytes = bytes_of(image);
  ByteReader in(bytes, "table");
  SlotTable table = table_of(kind);
  return error_message([&] { table.load(in); });
}

// Inserts 40 tokens, drops every third of the first 30, inserts 3: tokens, free slots and newly inserted slots.
SlotTable used(const Kind& kind) {
  SlotTable table = table_of(kind);
  table.insert(40);
  std::vector<Move> moves;
  std::vector<int> victims;
  for (int slot = 0; slot < 30; slot += 3) victims.push_back(slot);
  table.drop(victims, moves);
  table.insert(3);
  return table;
}

const std::vector<Kind> kKinds = {{Mechanism::kInPlace},     {Mechanism::kInPlace, true, 2}, {Mechanism::kShift},
                                  {Mechanism::kShift, true}, {Mechanism::kGather, true, 1},  {Mechanism::kBlock},
                                  {Mechanism::kBlock, true}, {Mechanism::kAppend},           {Mechanism::kAppend, true},
                                  {Mechanism::kMerge}};

TEST(SlotsStream, AWholeTableIsRead) {
  for (const Kind& kind : kKinds) {
    EXPECT_EQ(refusal(kind, used(kind), [](Image&) {}), "");
    EXPECT_EQ(refusal(kind, table_of(kind), [](Image&) {}), "");
  }
}

TEST(SlotsStream, PositionsThatTheTableCannotHaveAreRefused) {
  for (const Kind& kind : kKinds) {
    const SlotTable valid = used(kind);
    // Relative positions and the guards of a selection are 32-bit differences from the base.
    const auto refused = [&](Position next, Position base) {
      return !refusal(kind, valid, [&](Image& i) {
                i.next = next;
                i.base = base;
                i.inserted.clear();  // they would not be the newest
              }).empty();
    };
    EXPECT_FALSE(refused(valid.next() + 100, 0));
    EXPECT_TRUE(refused(Position{1} << 40, 0));
    EXPECT_TRUE(refused(std::numeric_limits<Position>::max(), std::numeric_limits<Position>::max() - 5));
    EXPECT_TRUE(refused(valid.next(), 7)) << "tables are rebased at 2^30";
  }
}

TEST(SlotsStream, ScoresAndStatisticsAreFinite) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()})
    for (const Kind& kind : kKinds) {
      const SlotTable valid = used(kind);
      const auto slot = static_cast<std::size_t>(valid.inserted()[0]);
      EXPECT_NE(refusal(kind, valid, [&](Image& i) { i.score[slot] = bad; }), "");
      for (std::size_t c = 0; c < static_cast<std::size_t>(kind.columns); ++c)
        EXPECT_NE(refusal(kind, valid, [&](Image& i) { i.columns[c][slot] = bad; }), "");
    }
}

TEST(SlotsStream, RanksAreTheOrderOfAge) {
  for (const Kind& kind : kKinds) {
    if (!kind.ranks) continue;
    const SlotTable valid = used(kind);
    const auto a = static_cast<std::size_t>(valid.inserted()[0]), b = static_cast<std::size_t>(valid.inserted()[1]);
    EXPECT_NE(refusal(kind, valid, [&](Image& i) { std::swap(i.rank[a], i.rank[b]); }), "");
  }
}

TEST(SlotsStream, ShiftAndGatherKeepTheirSlotsInTheOrderOfAge) {
  for (const Mechanism mechanism : {Mechanism::kShift, Mechanism::kGather}) {
    const Kind kind{mechanism};
    EXPECT_NE(refusal(kind, used(kind), [](Image& i) { std::swap(i.position[4], i.position[9]); }), "");
  }
}

TEST(SlotsStream, FreshSlotsAreThoseOfTheNewestTokens) {
  for (const Kind& kind : kKinds) {
    const SlotTable valid = used(kind);
    EXPECT_NE(refusal(kind, valid, [](Image& i) { i.inserted[1] = i.inserted[0]; }), "") << "twice";
    EXPECT_NE(refusal(kind, valid, [](Image& i) { std::swap(i.inserted[1], i.inserted[0]); }), "") << "order";
    EXPECT_NE(refusal(kind, valid, [](Image& i) { i.inserted.pop_back(); }), "") << "the newest is not among them";
    EXPECT_EQ(refusal(kind, valid, [](Image& i) { i.inserted.clear(); }), "");
  }
}

TEST(SlotsStream, TheLastPageIsMapped) {
  for (const Kind& kind : kKinds)
    EXPECT_NE(refusal(kind, used(kind),
                      [](Image& i) {
                        i.page_occupied.push_back(-1);
                        i.position.resize(i.position.size() + kPage, kNoPosition);
                        i.score.resize(i.score.size() + kPage);
                        for (auto& column : i.columns) column.resize(i.score.size());
                        if (!i.rank.empty()) i.rank.resize(i.score.size(), -1);
                      }),
              "");
}

// Whole pages are dropped, so all pages but one are full or empty; that one takes the next token.
TEST(SlotsStream, BlockHasOnePageAtMostThatIsPartlyFull) {
  const Kind kind{Mechanism::kBlock};
  SlotTable valid = table_of(kind);
  std::vector<Move> moves;
  const auto drop_page = [&](int page) {
    std::vector<int> victims;
    for (int slot = 0; slot < kPage; ++slot) victims.push_back(page * kPage + slot);
    valid.drop(victims, moves);
  };
  valid.insert(3 * kPage);
  drop_page(0);
  valid.insert(5);
  drop_page(1);
  EXPECT_EQ(refusal(kind, valid, [](Image&) {}), "");
  const auto hole = [](Image& i) {
    i.position[2 * kPage + 3] = kNoPosition;
    --i.page_occupied[2];
    i.free.push_back(2 * kPage + 3);
    i.inserted.clear();
  };
  EXPECT_NE(refusal(kind, valid, hole), "");
  EXPECT_EQ(refusal({Mechanism::kInPlace}, valid, hole), "") << "fine elsewhere";
  EXPECT_NE(refusal(kind, valid, [](Image& i) { std::swap(i.free.front(), i.free.back()); }), "")
      << "the next two tokens would go into two pages";
}

}  // namespace
}  // namespace palimpsest::testing
