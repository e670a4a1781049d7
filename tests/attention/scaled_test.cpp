// q8_0: stored bytes, and their change when slots move.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/relocate_rows.h"
#include "tests/support/error_of.h"
#include "tests/support/slot_rows.h"

namespace palimpsest::testing {
namespace {

LayerView layout() {
  return {
      .head_dim = 96, .value_dim = 64, .page_size = 32, .key_type = CacheType::kQ8_0, .value_type = CacheType::kQ8_0};
}

TEST(Scaled, PagesHoldBytesAndScales) {
  const LayerView v = layout();
  EXPECT_EQ(page_bytes(v), 32 * (96 + 96 / 32 * 2) + 32 * (64 + 64 / 32 * 2));
}

TEST(Scaled, EachBlockOfThirtyTwoIsRoundedToItsScale) {
  const LayerView v = layout();
  std::vector<std::byte> page(page_bytes(v));
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int offset : {0, 17, 31}) {
    std::vector<float> key(96), value(64);
    for (float& x : key) x = normal(random);
    for (int d = 32; d < 64; ++d) key[d] *= 1000;
    for (int d = 64; d < 96; ++d) key[d] = 0;
    for (float& x : value) x = normal(random);
    store_key(v, page.data(), offset, key.data());
    store_value(v, page.data(), offset, value.data());
    const auto expect_close = [&](float loaded, const std::vector<float>& row, int d) {
      float max = 0;
      for (int i = d / 32 * 32; i < d / 32 * 32 + 32; ++i) max = std::max(max, std::abs(row[i]));
      EXPECT_LE(std::abs(loaded - row[d]), max / 127 * 0.51f) << d;
    };
    for (int d = 0; d < 96; ++d) expect_close(key_in(v, page.data(), offset)[d], key, d);
    for (int d = 0; d < 64; ++d) expect_close(value_in(v, page.data(), offset)[d], value, d);
  }
}

TEST(Scaled, KeysAndValuesMoveWithTheirScales) {
  const LayerView v = layout();
  std::vector<std::byte> bytes(2 * page_bytes(v));
  constexpr PageId kIds[] = {1, 0};
  const BlockTable pages = {kIds, bytes.data(), page_bytes(v)};
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> token(64);
  const auto read = [&](int slot) {
    std::vector<float> all = key_in(v, pages[slot / 32], slot % 32);
    const std::vector<float> value = value_in(v, pages[slot / 32], slot % 32);
    all.insert(all.end(), value.begin(), value.end());
    return all;
  };
  for (int slot = 0; slot < 64; ++slot) {
    std::vector<float> row(96);
    for (float& x : row) x = normal(random) * std::exp2(static_cast<float>(slot % 7));
    store_key(v, pages[slot / 32], slot % 32, row.data());
    store_value(v, pages[slot / 32], slot % 32, row.data() + 16);
    token[slot] = read(slot);
  }
  std::vector<Move> moves;  // drops every third slot
  std::vector<int> kept;
  for (int slot = 0; slot < 64; ++slot) {
    if (slot % 3 == 1) continue;
    if (static_cast<int>(kept.size()) < slot) moves.push_back({slot, static_cast<int>(kept.size())});
    kept.push_back(slot);
  }
  relocate_rows(v, pages, pages, moves);
  for (std::size_t slot = 0; slot < kept.size(); ++slot)
    EXPECT_EQ(read(static_cast<int>(slot)), token[kept[slot]]) << slot;
}

TEST(Scaled, RefusesHeadsThatAreNoMultiple) {
  CacheOptions o{.geometry = HeadGeometry::uniform(1, 1, 80, 80, CacheType::kQ8_0)};
  EXPECT_NE(error_of([&] { Cache cache(o); }).find("multiple of 32 dimensions, not 80"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
