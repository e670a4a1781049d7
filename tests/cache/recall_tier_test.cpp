// The second tier against lists of tokens: what it holds, and that the oldest page is replaced.
#include "palimpsest/cache/recall_tier.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tests/cache/two_layers.h"

namespace palimpsest::testing {
namespace {

constexpr int kKeyWidth = 32, kValueWidth = 64, kTierHeads = 2;

struct Token {
  Position position;
  std::vector<float> key, value;
};
using Page = std::vector<Token>;

class NaiveTier {
 public:
  explicit NaiveTier(std::size_t max_pages) : max_pages_(max_pages) {}
  void append(Token token) {
    if (pages_.empty() || written_ % kTile == 0) {
      if (pages_.size() == max_pages_) pages_.pop_front();
      pages_.emplace_back();
    }
    ++written_;
    pages_.back().push_back(std::move(token));
  }
  void forget(Position from) {
    for (Page& page : pages_) std::erase_if(page, [&](const Token& t) { return t.position >= from; });
  }
  std::multiset<Position> positions() const {
    std::multiset<Position> all;
    for (const Page& page : pages_)
      for (const Token& t : page) all.insert(t.position);
    return all;
  }
  const std::deque<Page>& pages() const { return pages_; }

 private:
  std::size_t max_pages_;
  long long written_ = 0;
  std::deque<Page> pages_;
};

std::vector<float> random_row(int width, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> row(static_cast<std::size_t>(width));
  for (float& x : row) x = normal(random);
  return row;
}

// Every token of the naive tier is found in one page of the tier, by its key.
void check(const RecallTier& tier, int head, const NaiveTier& naive) {
  const RecallPages pages = tier.pages(head);
  const LayerView layout = tier.layout(head);
  std::multiset<std::vector<float>> found, wanted;
  for (int page = 0; page < pages.pages; ++page)
    for (int lane = 0; lane < kTile; ++lane) {
      if ((pages.present[page] >> lane & 1) == 0) continue;
      std::vector<float> row(kKeyWidth + kValueWidth);
      load_key(layout, pages.page[page], lane, row.data());
      load_value(layout, pages.page[page], lane, row.data() + kKeyWidth);
      found.insert(row);
    }
  for (const Page& page : naive.pages())
    for (const Token& t : page) {
      std::vector<float> row = t.key;
      row.insert(row.end(), t.value.begin(), t.value.end());
      wanted.insert(row);
    }
  ASSERT_EQ(found, wanted);
  ASSERT_EQ(tier.tokens(head), static_cast<long long>(wanted.size()));
}

TEST(RecallTier, RandomOperationsAgainstLists) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const int max_pages = 1 + static_cast<int>(random() % 6);
    RecallTier tier(HeadGeometry::uniform(1, kTierHeads, kKeyWidth, kValueWidth), CacheType::kF32,
                    max_pages * kTile - 3);
    std::vector<NaiveTier> naive(kTierHeads, NaiveTier(static_cast<std::size_t>(max_pages)));
    EXPECT_TRUE(tier.empty());
    Position next = 0;
    for (int step = 0; step < 60; ++step) {
      if (random() % 12 == 0) {
        next = static_cast<Position>(random() % static_cast<unsigned>(next + 1));
        tier.forget(next);
        for (NaiveTier& each : naive) each.forget(next);
      }
      const int count = static_cast<int>(random() % 20);
      for (int head = 0; head < kTierHeads; ++head) {
        tier.reserve(head, count);
        for (int i = 0; i < count; ++i) {
          Token token{next + i, random_row(kKeyWidth, random), random_row(kValueWidth, random)};
          tier.append(head, token.position, token.key.data(), token.value.data());
          naive[static_cast<std::size_t>(head)].append(std::move(token));
        }
        check(tier, head, naive[static_cast<std::size_t>(head)]);
      }
      next += count;
      if (random() % 10 == 0) {
        const RecallTier copy(tier);
        for (int head = 0; head < kTierHeads; ++head) check(copy, head, naive[static_cast<std::size_t>(head)]);
      }
    }
    EXPECT_LE(tier.bytes(), RecallTier::max_bytes(HeadGeometry::uniform(1, kTierHeads, kKeyWidth, kValueWidth),
                                                  CacheType::kF32, max_pages * kTile, 60 * 20));
    tier.clear();
    EXPECT_TRUE(tier.empty());
    EXPECT_EQ(tier.tokens(0), 0);
  }
}

TEST(RecallTier, HeadsOfSeveralWidths) {
  const HeadGeometry geometry = two_layers({8, 8}, {32, 16});
  RecallTier tier(geometry, CacheType::kF32, 100);
  std::mt19937 random(3);
  std::vector<std::vector<std::vector<float>>> rows(4);
  for (int head = 0; head < 4; ++head) {
    const LayerGeometry& layer = geometry.layer_geometry(head);
    tier.reserve(head, 40);
    for (int i = 0; i < 40; ++i) {
      const auto key = random_row(layer.key_width, random), value = random_row(layer.value_width, random);
      tier.append(head, i, key.data(), value.data());
      rows[static_cast<std::size_t>(head)].push_back(key);
    }
  }
  const RecallTier copy(tier);
  for (const RecallTier* each : {&std::as_const(tier), &copy})
    for (int head = 0; head < 4; ++head) {
      EXPECT_EQ(each->layout(head).head_dim, geometry.layer_geometry(head).key_width);
      for (int i = 0; i < 40; ++i) {
        std::vector<float> stored(static_cast<std::size_t>(each->layout(head).head_dim));
        load_key(each->layout(head), each->pages(head).page[i / kTile], i % kTile, stored.data());
        EXPECT_EQ(stored, rows[static_cast<std::size_t>(head)][static_cast<std::size_t>(i)]);
      }
    }
  EXPECT_LE(tier.bytes(), RecallTier::max_bytes(geometry, CacheType::kF32, 100, 40));
}

TEST(RecallTier, EveryTypeHoldsItsTokens) {
  for (const CacheType type : kCacheTypes) {
    RecallTier tier(HeadGeometry::uniform(1, 1, kKeyWidth, kValueWidth), type, 1000);
    std::mt19937 random(3);
    tier.reserve(0, 50);
    for (int i = 0; i < 50; ++i) {
      const auto key = random_row(kKeyWidth, random), value = random_row(kValueWidth, random);
      tier.append(0, i, key.data(), value.data());
      std::vector<float> stored(kKeyWidth);
      load_key(tier.layout(0), tier.pages(0).page[i / kTile], i % kTile, stored.data());
      double error = 0;
      for (int d = 0; d < kKeyWidth; ++d) {
        const double apart = stored[static_cast<std::size_t>(d)] - key[static_cast<std::size_t>(d)];
        error += apart * apart / kKeyWidth;
      }
      EXPECT_LT(std::sqrt(error), kv_format(type).bits() < 3 ? 0.8 : kv_format(type).bits() < 4 ? 0.4 : 0.2);
    }
    EXPECT_EQ(tier.tokens(0), 50);
  }
}

}  // namespace
}  // namespace palimpsest::testing
