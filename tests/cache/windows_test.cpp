// Heads that keep a window: their tables, refused edits, sharing.
#include <gtest/gtest.h>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

constexpr std::int32_t kAll = INT32_MAX;

CacheOptions with_windows(std::vector<std::int32_t> windows, bool shared = true) {
  return {.geometry = HeadGeometry::uniform(2, 2, 4, 4), .shared = shared, .windows = std::move(windows)};
}

// As the engine does before each step.
void drop_outside(Cache& cache) {
  Victims plan;
  plan.drop.resize(static_cast<std::size_t>(cache.tables()));
  for (int t = 0; t < cache.tables(); ++t)
    cache.table(t).append_slots({0, cache.next() - cache.window(t) + 1}, plan.drop[static_cast<std::size_t>(t)]);
  cache.prepare({.out_of_window = plan.drop}).commit();
}

void read(Cache& cache, int tokens, int chunk = 8) {
  for (int done = 0; done < tokens; done += chunk) {
    drop_outside(cache);
    cache.insert(std::min(chunk, tokens - done));
  }
  drop_outside(cache);
}

TEST(CacheWindows, HeadsOfOneWindowShareATable) {
  Cache cache(with_windows({20, 20, kAll, kAll}));
  EXPECT_EQ(cache.tables(), 2);
  EXPECT_EQ(cache.table_of(1), 0);
  EXPECT_EQ(cache.table_of(2), 1);
  EXPECT_EQ(cache.window(0), 20);
  EXPECT_EQ(cache.window(1), kAll);
  read(cache, 100);
  EXPECT_EQ(cache.table(0).occupied(), 19);
  EXPECT_EQ(cache.table(1).occupied(), 100);
  EXPECT_EQ(cache.occupied(), 100);
  EXPECT_EQ(cache.evicted(), 0);
  EXPECT_FALSE(cache.nothing_evicted());
  EXPECT_EQ(cache.head(0).slots, cache.head(1).slots);
  EXPECT_NE(cache.head(0).slots, cache.head(2).slots);
  EXPECT_EQ(Cache(with_windows({20, 20, kAll, kAll}, false)).tables(), 4);
  EXPECT_EQ(Cache(with_windows({20, 20, 20, 20})).tables(), 1);
  EXPECT_NE(error_of([] { Cache(with_windows({0, 1, 1, 1})); }).find("a window of no position"), std::string::npos);
}

// Evictions are counted in the tables that keep all tokens, or in all tables if none does.
TEST(CacheWindows, CountsEvictedTokens) {
  for (const std::int32_t other : {kAll, 30}) {
    Cache cache(with_windows({20, 20, other, other}));
    read(cache, 60);
    EXPECT_EQ(cache.evicted(), 0);
    std::vector<std::vector<int>> drop(2);
    cache.table(0).append_slots({50, 52}, drop[0]);
    cache.table(1).append_slots({50, 56}, drop[1]);
    cache.prepare({.drop = drop}).commit();
    EXPECT_EQ(cache.evicted(), other == kAll ? 6 : 4);
    EXPECT_FALSE(cache.compatible_with(with_windows({20, 20, other, other}, false)));
  }
}

TEST(CacheWindows, RefuseEditsThatWouldShowWhatTheyDropped) {
  const auto refuses = [](int tokens, const CacheChange& change) {
    Cache cache(with_windows({20, 20, kAll, kAll}));
    read(cache, tokens);
    const std::string message = error_message([&] { cache.prepare(change).commit(); });
    EXPECT_EQ(message.empty(), message.find("an attention window of 20 have dropped") == std::string::npos) << message;
    return !message.empty();
  };
  EXPECT_TRUE(refuses(60, {.drop_range = {59, kEndOfText}}));
  EXPECT_TRUE(refuses(60, {.drop_range = {41, 45}, .shift_range = {45, kEndOfText}, .shift_by = -4}));
  EXPECT_TRUE(refuses(60, {.insert = 1, .at = 59}));
  EXPECT_FALSE(refuses(60, {.shift_range = {0, kEndOfText}, .shift_by = 7}));
  EXPECT_FALSE(refuses(60, {.shift_range = {41, kEndOfText}, .shift_by = 7}));
  EXPECT_FALSE(refuses(60, {.drop_range = {45, 50}})) << "a gap shows nothing";
  EXPECT_FALSE(refuses(19, {.drop_range = {2, kEndOfText}})) << "nothing was outside yet";
  // The whole text is shifted, dropped tokens included: the same window is visible.
  Cache cache(with_windows({20, 20, kAll, kAll}));
  cache.set_next(1000);
  read(cache, 60);
  cache.shift(1000, kEndOfText, -500);
  EXPECT_EQ(cache.next(), 560);
}

// Which slots a window frees depends on the mechanism only, not on the method.
TEST(CacheWindows, AreSharedByKindsThatDropAlike) {
  const CacheOptions shared = with_windows({20, 20, kAll, kAll});
  Cache cache(shared);
  read(cache, 100);
  CacheOptions other = with_windows({20, 20, kAll, kAll}, false);
  other.track_rank = true;
  other.columns = 2;
  ASSERT_TRUE(cache.compatible_with(other));
  auto pool = std::make_shared<PagePool>(page_bytes(cache.view(0)));
  Cache from(shared, pool), to(other, pool), same(other, pool);
  read(from, 100);
  read(same, 100);
  ASSERT_TRUE(to.can_share(from));
  to.share(from);
  ASSERT_EQ(to.fault(), nullptr);
  for (int i = 0; i < 3; ++i) {
    for (int t = 0; t < 4; ++t) {
      EXPECT_TRUE(std::ranges::equal(to.table(t).position(), same.table(t).position())) << t;
      EXPECT_TRUE(std::ranges::equal(to.table(t).rank(), same.table(t).rank())) << t;
      EXPECT_EQ(to.table(t).next_slot({}, 0), same.table(t).next_slot({}, 0)) << t;
    }
    read(to, 17);
    read(same, 17);
  }
  other.mechanism = Mechanism::kShift;
  EXPECT_FALSE(cache.compatible_with(other));
  EXPECT_FALSE(cache.compatible_with(with_windows({})));
  EXPECT_FALSE(cache.compatible_with(with_windows({21, 21, kAll, kAll})));
  Cache few(shared);
  read(few, 19);
  EXPECT_TRUE(few.nothing_evicted());
  EXPECT_TRUE(few.compatible_with(other)) << "nothing was outside yet";
}

// Files saved when one table served all heads.
TEST(CacheWindows, ReadTablesWithoutWindows) {
  std::vector<std::byte> bytes;
  Cache before(with_windows({}));
  before.insert(70);
  ByteWriter out([&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); });
  before.save(out);
  Cache cache(with_windows({20, 20, kAll, kAll}));
  ByteReader in(bytes, "a cache");
  cache.load(in);
  ASSERT_EQ(cache.fault(), nullptr);
  EXPECT_EQ(cache.table(0).occupied(), 70);
  const std::size_t all = cache.bytes_in_use();
  drop_outside(cache);
  cache.defragment(0);
  EXPECT_EQ(cache.table(0).occupied(), 19);
  EXPECT_EQ(cache.table(1).occupied(), 70);
  EXPECT_LT(cache.bytes_in_use(), all);

  bytes.clear();
  ByteWriter again([&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); });
  cache.save(again);
  Cache same(with_windows({20, 20, kAll, kAll}));
  ByteReader once_more(bytes, "a cache");
  same.load(once_more);
  EXPECT_EQ(same.table(0).occupied(), 19);
  EXPECT_NE(error_of([&] {
              ByteReader wrong(bytes, "a cache");
              Cache(with_windows({})).load(wrong);
            }),
            "");
}

}  // namespace
}  // namespace palimpsest::testing
