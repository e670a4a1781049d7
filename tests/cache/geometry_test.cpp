// Flat head indices; invalid geometries.
#include "palimpsest/cache/geometry.h"

#include <gtest/gtest.h>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/footprint.h"
#include "palimpsest/core/error.h"

namespace palimpsest::testing {
namespace {

LayerGeometry layer(int query_heads, int kv_heads, int width = 8) {
  return {.kv_heads = kv_heads, .query_heads = query_heads, .key_width = width, .value_width = width};
}

TEST(HeadGeometry, CountsTheHeadsOfLayersThatDiffer) {
  const HeadGeometry g({layer(6, 3), layer(0, 0), layer(8, 2), layer(4, 0)});
  EXPECT_EQ(g.layers(), 4);
  EXPECT_EQ(g.heads(), 5);
  int flat = 0;
  for (int l = 0; l < g.layers(); ++l) {
    EXPECT_EQ(g.first_head(l), flat) << l;
    for (int h = 0; h < g.layer(l).kv_heads; ++h, ++flat) {
      EXPECT_EQ(g.head(l, h), flat);
      EXPECT_EQ(g.layer_of(flat), l);
      EXPECT_EQ(g.kv_head_of(flat), h);
    }
  }
  EXPECT_EQ(g.max_kv_heads(), 3);
  EXPECT_EQ(g.max_group(), 4);
  EXPECT_FALSE(g.is_uniform());
  EXPECT_TRUE(HeadGeometry::uniform(3, 2, 8, 8).is_uniform());
}

TEST(HeadGeometry, WindowsAndTypesAreReplacedWhole) {
  const std::int32_t windows[] = {INT32_MAX, 24};
  const HeadGeometry g =
      HeadGeometry::uniform(2, 2, 8, 8).with_windows(windows).with_types(CacheType::kF32, CacheType::kBF16);
  EXPECT_EQ(g.min_window(), 24);
  EXPECT_EQ(g.windowed_layers(), 1);
  EXPECT_TRUE(g.is_uniform());
  EXPECT_EQ(g.layer(1).key_type, CacheType::kF32);
  EXPECT_EQ(g.layer(1).value_type, CacheType::kBF16);
}

TEST(HeadGeometry, RefusesWhatCannotBeCounted) {
  EXPECT_THROW(HeadGeometry({layer(5, 3)}), Error);
  EXPECT_THROW(HeadGeometry({layer(0, 3)}), Error);
  EXPECT_THROW(HeadGeometry({layer(-2, -1)}), Error);
  EXPECT_THROW(HeadGeometry({layer(2, 1, 0)}), Error);
  EXPECT_THROW(HeadGeometry({layer(1 << 24, 1 << 24, 4096)}), Error);
  EXPECT_THROW(HeadGeometry(std::vector<LayerGeometry>(4096, layer(1 << 20, 1 << 20, 1))), Error)
      << "2^32 heads are 0 in an int";
}

// A head's pages, tables and statistics are found by its flat index, in layers of any size.
TEST(HeadGeometry, ACacheHasATableForEachHead) {
  Cache cache({.geometry = HeadGeometry({layer(0, 0), layer(2, 1), layer(9, 3)}), .shared = false, .head_floats = 2});
  EXPECT_EQ(cache.tables(), 4);
  cache.insert(20);
  EXPECT_EQ(cache.pages().size(), 4u * 2);
  EXPECT_EQ(cache.view(0).kv_heads, 0);
  EXPECT_EQ(cache.view(1).head, &cache.head(0));
  EXPECT_EQ(cache.view(2).head + 2, &cache.head(3));
  cache.head_statistics(3)[1] = 7;
  EXPECT_EQ(cache.head_statistics(2)[1], 0);
  Victims plan;
  plan.drop = {{}, {0, 1}, {}, {5}};
  cache.apply(plan);
  EXPECT_EQ(cache.table(cache.geometry().head(2, 0)).occupied(), 18);
  EXPECT_EQ(cache.table(cache.geometry().head(2, 2)).occupied(), 19);
  EXPECT_THROW(Cache({.geometry = HeadGeometry({layer(0, 0)})}), Error);
}

// A head's pages are as large as its layer's widths ask for.
TEST(HeadGeometry, HeadsOfTwoWidthsHavePagesOfTwoSizes) {
  const HeadGeometry geometry({layer(2, 1, 8), layer(2, 2, 24)});
  EXPECT_FALSE(geometry.one_width());
  EXPECT_FALSE(geometry.is_uniform());
  EXPECT_EQ(geometry.max_key_width(), 24);
  EXPECT_TRUE(HeadGeometry({layer(2, 1, 8), layer(0, 0, 24), layer(4, 2, 8)}).one_width());
  const CacheOptions options = {.geometry = geometry};
  Cache cache(options);
  cache.insert(20);
  std::size_t bytes = 0;
  for (const std::size_t page : page_bytes_of_heads(options)) bytes += 2 * page;
  EXPECT_EQ(cache.bytes_in_use(), bytes);
  EXPECT_EQ(cache.pool()->bytes_in_use(), bytes);
  EXPECT_EQ(page_bytes_of_heads(options)[1], page_bytes(cache.view(1)));
  EXPECT_LT(page_bytes_of_heads(options)[0], page_bytes_of_heads(options)[1]);
  const Footprint f = footprint(options, {.tokens = 20, .inserted = 20});
  EXPECT_EQ(f.rows, bytes);
  EXPECT_EQ(f.row_bytes, 0U);
  EXPECT_EQ(f.token_bytes * 16 * 2, bytes);
}

}  // namespace
}  // namespace palimpsest::testing
