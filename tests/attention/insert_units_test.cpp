// No two insert units write into the same tile of slots, in whatever order new tokens take their slots: kernels may
// read, blend and write back whole rows of a tile.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "palimpsest/attention/work.h"
#include "tests/support/random_cache.h"

namespace palimpsest::testing {
namespace {

struct Memory {
  explicit Memory(const AttentionShape& shape) : floats(UnitMemory::floats(shape) + 16) {
    void* at = floats.data();
    std::size_t room = floats.size() * sizeof(float);
    unit.cut(shape, static_cast<float*>(std::align(64, 1, at, room)));
  }
  std::vector<float> floats;
  UnitMemory unit{};
};

// The tiles of slots whose bytes differ, of keys and of values.
std::set<std::size_t> tiles_apart(const std::vector<std::byte>& a, const std::vector<std::byte>& b, std::size_t tile) {
  std::set<std::size_t> difference;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) difference.insert(i / tile);
  return difference;
}

TEST(InsertUnits, NoTileIsWrittenByTwo) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    RandomCacheOptions o;
    o.type = seed % 6 == 0   ? CacheType::kQ8_0
             : seed == 3     ? CacheType::kQ4
             : seed == 9     ? CacheType::kQ3
             : seed == 7     ? CacheType::kQ2
             : seed % 3 == 1 ? CacheType::kF16
                             : CacheType::kF32;
    o.kv_heads = 1;
    o.group = 1;
    o.old_tokens = seed % 2 == 0 ? 300 : 0;
    o.new_tokens = 100 + static_cast<int>(seed) * 37;
    o.empty_slots = seed % 4 == 0 ? 0.3 : 0;
    o.seed = seed + 1;
    RandomCache cache(o);
    // The k-th new token takes the k-th victim's slot, so slots are in any order.
    const SlotsView& slots = *cache.step().cache[0].head[0].slots;
    std::vector<int> inserted(slots.inserted, slots.inserted + slots.inserted_count);
    std::mt19937 random(seed);
    if (seed % 5 != 4) std::ranges::shuffle(inserted, random);
    SlotsView other = slots;
    other.inserted = inserted.data();
    const HeadPages pages{cache.step().cache[0].head[0].page, &other};
    LayerView layer = cache.step().cache[0];
    layer.head = &pages;
    LayerStep step = cache.step();
    step.cache = &layer;

    const HeadStep work = head_step(step, 0, 0);
    ASSERT_GT(work.insert_units, 1);
    Memory memory(step.shape);
    const std::vector<std::byte> before = cache.bytes();
    const std::size_t tile = key_tile_bytes(layer);  // as large as one of values
    std::set<std::size_t> all;
    std::size_t sum = 0;
    int at_work = 0;
    for (int unit = 0; unit < work.insert_units; ++unit) {
      cache.restore(before);
      insert_tokens(work, unit, memory.unit);
      const auto mine = tiles_apart(before, cache.bytes(), tile);
      sum += mine.size();
      at_work += mine.empty() ? 0 : 1;
      all.insert(mine.begin(), mine.end());
    }
    EXPECT_EQ(sum, all.size()) << "seed " << seed << ": units share tiles";
    EXPECT_GT(at_work, work.insert_units / 2) << "seed " << seed;

    // Together the units write all.
    cache.restore(before);
    for (int unit = work.insert_units; unit-- > 0;) insert_tokens(work, unit, memory.unit);
    std::set<std::size_t> expected;
    const std::size_t page_tiles = page_bytes(layer) / tile, values = value_offset(layer) / tile;
    for (const int slot : inserted) {
      const auto page = static_cast<std::size_t>(pages.page[slot / o.page_size] - cache.bytes().data()) / tile;
      const auto offset = static_cast<std::size_t>(slot % o.page_size / kTile);
      ASSERT_LT(values + offset, page_tiles);
      expected.insert({page + offset, page + values + offset});
    }
    EXPECT_EQ(tiles_apart(before, cache.bytes(), tile), expected) << "seed " << seed;
  }
}

}  // namespace
}  // namespace palimpsest::testing
