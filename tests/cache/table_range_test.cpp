// Changes of some tables (CacheChange::tables): made layer by layer they leave what one change of all tables leaves.
#include <gtest/gtest.h>

#include <vector>

#include "palimpsest/cache/cache.h"

namespace palimpsest::testing {
namespace {

constexpr int kLayers = 3, kHeads = 2, kTables = kLayers * kHeads, kRead = 100, kKept = 30;

std::vector<std::vector<Position>> slots_of(const Cache& cache) {
  std::vector<std::vector<Position>> all;
  for (int t = 0; t < cache.tables(); ++t) {
    const auto positions = cache.table(t).position();
    all.emplace_back(positions.begin(), positions.end());
  }
  return all;
}

// All but each third token, oldest first, until kKept are left; of block: the first pages.
std::vector<int> victims(const SlotTable& table, Mechanism mechanism) {
  std::vector<int> oldest, drop;
  table.append_slots({0, kEndOfText}, oldest);
  const auto count = static_cast<std::size_t>(table.occupied() - kKept);
  for (std::size_t i = 0; i < oldest.size() && drop.size() < count; ++i)
    if (mechanism == Mechanism::kBlock || i % 4 != 1) drop.push_back(oldest[i]);
  return drop;
}

void read_and_compress(Cache& cache, TableRange tables) {
  cache.prepare({.insert = 60, .tables = tables}).commit();
  cache.prepare({.insert = kRead - 60, .tables = tables}).commit();
  std::vector<std::vector<int>> drop(kTables);
  for (int t = 0; t < kTables; ++t)
    if (tables.contains(t)) drop[static_cast<std::size_t>(t)] = victims(cache.table(t), cache.options().mechanism);
  const auto before = slots_of(cache);
  { const Transaction rolled_back = cache.prepare({.drop = drop, .tables = tables}); }
  EXPECT_EQ(slots_of(cache), before);
  cache.prepare({.drop = drop, .tables = tables}).commit();
  for (int t = 0; t < kTables; ++t) EXPECT_TRUE(tables.contains(t) || cache.moves(t).empty()) << t;
  cache.defragment(0, nullptr, tables);
}

TEST(TableRange, LayerByLayerIsAllAtOnce) {
  for (const Mechanism mechanism : {Mechanism::kInPlace, Mechanism::kShift, Mechanism::kGather, Mechanism::kAppend,
                                    Mechanism::kBlock, Mechanism::kMerge}) {
    SCOPED_TRACE(static_cast<int>(mechanism));
    const CacheOptions options{.geometry = HeadGeometry::uniform(kLayers, kHeads, 4, 4),
                               .mechanism = mechanism,
                               .shared = false,
                               .track_rank = true,
                               .columns = 1};
    Cache whole(options), layers(options);
    for (int prompt = 0; prompt < 2; ++prompt) {
      read_and_compress(whole, {});
      for (int first = 0; first < kTables; first += kHeads) {
        read_and_compress(layers, {first, first + kHeads});
        EXPECT_EQ(layers.table(first).next(), (prompt + 1) * kRead);
        const int read = first + kHeads < kTables ? prompt : prompt + 1;
        EXPECT_EQ(layers.table(kTables - 1).next(), read * kRead);
      }
      EXPECT_EQ(slots_of(layers), slots_of(whole));
      EXPECT_EQ(layers.evicted(), whole.evicted());
      EXPECT_EQ(layers.bytes_in_use(), whole.bytes_in_use());
      EXPECT_LT(layers.bytes_peak(), whole.bytes_peak());
      EXPECT_EQ(layers.fault(), nullptr);
      const std::size_t bytes = layers.bytes_tables();
      layers.shrink({});
      EXPECT_LE(layers.bytes_tables(), bytes);
      EXPECT_EQ(slots_of(layers), slots_of(whole));
      EXPECT_EQ(layers.fault(), nullptr);
    }
    whole.insert(40);
    layers.insert(40);
    EXPECT_EQ(slots_of(layers), slots_of(whole));
  }
}

}  // namespace
}  // namespace palimpsest::testing
