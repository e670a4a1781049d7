// The sizes that `info --cache` computes equal those of a session's cache, byte for byte.
#include "palimpsest/cache/footprint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ostream>

#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<Decoder> three_layer_decoder() {
  static const auto decoder = std::make_shared<Decoder>(Model::from(make_synthetic({.vocabulary = 64,
                                                                                    .width = 32,
                                                                                    .layers = 3,
                                                                                    .feed_forward = 32,
                                                                                    .query_heads = 4,
                                                                                    .kv_heads = 2,
                                                                                    .head_dim = 8})),
                                                        1);
  return decoder;
}

// Heads of 24 to 100 tokens.
std::string split_file() {
  static const std::string path = [] {
    const auto file = std::filesystem::path(own_file("split.txt"));
    std::ofstream(file) << "* * 40\n0 1 24\n1 * 64\n2 0 100\n";
    return file.string();
  }();
  return path;
}

struct FootprintCase {
  std::string method;
  CacheTypes type = {};
  int page_size = 16;
  bool uneven = false;

  SessionOptions options(int chunk = 32) const {
    SessionOptions out;
    out.method = parse_method(method);
    if (uneven) out.method.split = Split(split_file());
    out.cache_type = type;
    out.page_size = page_size;
    out.chunk = chunk;
    return out;
  }
  std::shared_ptr<const MethodPlan> plan() const {
    const SessionOptions o = options();
    return std::make_shared<MethodPlan>(o.method, plan_target(*three_layer_decoder(), o));
  }
  friend std::ostream& operator<<(std::ostream& out, const FootprintCase& c) {
    return out << c.method << " type " << name_of(c.type) << " page " << c.page_size << (c.uneven ? " uneven" : "");
  }
};

class FootprintTest : public ::testing::TestWithParam<FootprintCase> {
 protected:
  Footprint foreseen(const std::vector<Occupancy>& occupancy) const { return footprint(plan_->cache(), occupancy); }
  std::shared_ptr<const MethodPlan> plan_ = GetParam().plan();
};

TEST_P(FootprintTest, HoldsWhileTheModelWrites) {
  const SessionOptions options = GetParam().options();
  Session session(three_layer_decoder(), options);
  std::size_t max_in_use = 0, max_in_tables = 0;
  for (int tokens = 1; tokens <= 150; ++tokens) {
    session.decode(tokens % 64);
    max_in_use = std::max(max_in_use, session.cache().bytes_in_use());
    max_in_tables = std::max(max_in_tables, session.cache().bytes_tables());
    const Footprint expected = foreseen(plan_->occupancies(0, tokens).decode);
    ASSERT_EQ(max_in_use, expected.in_use()) << tokens;
    ASSERT_EQ(max_in_tables, expected.bookkeeping()) << tokens;
    ASSERT_EQ(session.cache().bytes_peak(), expected.in_use()) << tokens;
  }
}

TEST_P(FootprintTest, HoldsWhileAPromptIsRead) {
  for (const int prompt : {1, 7, 32, 33, 64, 100, 200, 333}) {
    const SessionOptions options = GetParam().options();
    Session session(three_layer_decoder(), options);
    const std::vector<TokenId> tokens(static_cast<std::size_t>(prompt), 5);
    std::size_t max_in_tables = 0;
    session.prefill(tokens, [&](long long, long long) {
      max_in_tables = std::max(max_in_tables, session.cache().bytes_tables());
      return true;
    });
    const Footprint expected = foreseen(plan_->occupancies(prompt, prompt).prefill);
    if (GetParam().method.find("append") != std::string::npos) {
      EXPECT_LE(session.cache().bytes_peak(), expected.in_use()) << prompt;
    } else if (!GetParam().uneven && GetParam().method.find("split=") == std::string::npos) {
      EXPECT_EQ(session.cache().bytes_peak(), expected.in_use()) << prompt;
    } else {  // heads with different budgets reach their maximum at different times
      EXPECT_LE(session.cache().bytes_peak(), expected.in_use()) << prompt;
      EXPECT_GE(session.cache().bytes_peak(), 0.9 * static_cast<double>(expected.in_use())) << prompt;
    }
    EXPECT_LE(max_in_tables, expected.bookkeeping()) << prompt;
  }
}

using BoundedFootprintTest = FootprintTest;

// A prompt's pages are returned after the window has moved past them.
TEST_P(BoundedFootprintTest, APromptLeavesNoTrace) {
  const SessionOptions options = GetParam().options();
  Session session(three_layer_decoder(), options);
  session.prefill(std::vector<TokenId>(300, 5));
  for (int i = 0; i < 200; ++i) session.decode(7);
  EXPECT_EQ(session.cache().bytes_in_use(), foreseen(plan_->occupancies(300, 500).decode).in_use());
}

const FootprintCase kUnbounded[] = {{"full"}, {"full", CacheType::kF32, 64}};
const FootprintCase kBounded[] = {
    {"streaming:budget=64"},
    {"streaming:budget=64", CacheType::kF32, 32},
    {"streaming:budget=64", CacheType::kBF16, 64},
    {"streaming:budget=41", CacheType::kF16, 48},
    {"streaming:budget=60,mechanism=shift"},
    {"streaming:budget=60,rerotate=fused"},
    {"streaming:budget=60,rerotate=cached-half"},
    {"h2o:budget=60,positions=cache,rerotate=cached-half"},
    {"streaming:budget=60,slack=6"},
    {"streaming:budget=60,pin=0-9"},
    {"streaming:budget=60,pin=9-12"},
    {"lazy:budget=60,every=8,slack=6,overlap=5,evict=after"},
    {"streaming:budget=60,evict=after"},
    {"h2o:budget=60,every=8,slack=6,evict=after"},
    {"streaming:budget=60,schedule=page"},
    {"sparse:budget=60"},
    {"lazy:budget=60,every=8"},
    {"lazy:budget=60,every=8,mechanism=shift", CacheType::kF32, 32},
    {"h2o:budget=64"},
    {"h2o:budget=60", CacheType::kF32, 32},
    {"h2o:budget=60,every=8,positions=cache"},
    {"h2o:budget=60,every=8,positions=auto"},
    {"h2o:budget=60,mechanism=shift,positions=cache"},
    {"random:budget=64"},
    {"streaming:budget=64", CacheType::kF16, 16, true},
    {"streaming:budget=60,mechanism=shift", CacheType::kF16, 16, true},
    {"streaming:budget=60,rerotate=cached-half", CacheType::kF32, 32, true},
    {"streaming:budget=60,schedule=page", CacheType::kF16, 16, true},
    {"lazy:budget=60,every=8", CacheType::kF16, 16, true},
    {"lazy:budget=60,every=8,mechanism=shift", CacheType::kF32, 32, true},
    {"h2o:budget=64", CacheType::kF16, 16, true},
    {"h2o:budget=60,every=8,positions=cache", CacheType::kF32, 32, true},
    {"random:budget=64,sinks=2,recent=8", CacheType::kF16, 48, true},
    {"paged-eviction:budget=64"},
    {"paged-eviction:budget=60,schedule=step", CacheType::kF32},
    {"paged-eviction:budget=96,schedule=page,positions=cache", CacheType::kF16, 32},
    {"streaming:budget=64,mechanism=block,sinks=4"},
    {"knorm:budget=64"},
    {"knorm:budget=60,mechanism=shift,positions=cache", CacheType::kF32, 32, true},
    {"keydiff:budget=64"},
    {"tova:budget=64"},
    {"snapkv:budget=64,schedule=step"},
    {"r-kv:budget=64,every=16,mechanism=shift"},
    {"lagkv:budget=64"},
    {"expected-attention:budget=64,every=8"},
    {"expected-attention:budget=60,every=16,mechanism=shift", CacheType::kF32, 32, true},
    {"h2o:budget=64,sinks=0.1,recent=0.25"},
    {"h2o:budget=64,split=pyramid,sinks=2,recent=8"},
    {"streaming:budget=64,split=pyramid,sinks=2"},
    {"global-local:budget=64"},
    {"ems:budget=64,tau=1,gamma=1"},
    {"cam:budget=64"},
    {"h2o:budget=64,every=16,mechanism=match"},
    {"streaming:budget=64", {CacheType::kF32, CacheType::kBF16}},
    {"h2o:budget=60,positions=cache,rerotate=cached-half", {CacheType::kF16, CacheType::kF32}, 32, true},
};
INSTANTIATE_TEST_SUITE_P(Unbounded, FootprintTest, ::testing::ValuesIn(kUnbounded));
INSTANTIATE_TEST_SUITE_P(Bounded, FootprintTest, ::testing::ValuesIn(kBounded));
INSTANTIATE_TEST_SUITE_P(Bounded, BoundedFootprintTest, ::testing::ValuesIn(kBounded));

// Append: slots are freed only when their page is empty. Never more bytes than computed; empty pages are unmapped.
TEST(Footprint, OfAppendIsABound) {
  for (const char* method :
       {"knorm:budget=40,mechanism=append", "streaming:budget=40,mechanism=append",
        "streaming:budget=41,mechanism=append,positions=original", "keydiff:budget=24,mechanism=append"}) {
    const SessionOptions options = FootprintCase{method}.options();
    Session session(three_layer_decoder(), options);
    const Cache& cache = session.cache();
    for (int tokens = 1; tokens <= 400; ++tokens) {
      session.decode((tokens * 37 + tokens / 7) % 64);
      const MethodPlan& plan = session.sequence().plan();
      const Footprint f = footprint(plan.cache(), plan.occupancies(0, tokens).decode);
      ASSERT_LE(cache.bytes_in_use(), f.in_use()) << method << " " << tokens;
      ASSERT_LE(cache.bytes_tables(), f.bookkeeping()) << method << " " << tokens;
    }
    EXPECT_GT(cache.evicted(), 300);
    for (int t = 0; t < cache.tables(); ++t)
      for (int page = 0; page < cache.table(t).pages(); ++page)
        EXPECT_TRUE(!cache.table(t).mapped(page) || cache.table(t).occupied_in_page(page) > 0) << method;
    EXPECT_GE(cache.slots_per_token(), 1);
  }
}

// Merged tokens take at most the computed bytes; keys and values take those of the budget.
TEST(Footprint, OfMergeIsABound) {
  for (const char* method :
       {"ems:budget=40,recent=8,tau=0", "ems:budget=48,recent=8,tau=0.05,gamma=9,schedule=step,merge-position=own"}) {
    const SessionOptions options = FootprintCase{method}.options();
    Session session(three_layer_decoder(), options);
    const Cache& cache = session.cache();
    std::size_t merged = 0;
    for (int tokens = 1; tokens <= 400; ++tokens) {
      session.decode((tokens * 37 + tokens / 7) % 64);
      const MethodPlan& plan = session.sequence().plan();
      const Footprint f = footprint(plan.cache(), plan.occupancies(0, tokens).decode);
      ASSERT_EQ(cache.bytes_in_use(), f.in_use()) << method << " " << tokens;
      ASSERT_LE(cache.bytes_tables(), f.bookkeeping()) << method << " " << tokens;
    }
    for (int t = 0; t < cache.tables(); ++t) merged += cache.merged(t)->tokens().size();
    EXPECT_GT(merged, 100u) << method;
  }
}

// One table per head, with ranks: the terms that sinks + window does not need.
TEST(Footprint, OfTablesOfTheirOwn) {
  for (const bool ranks : {false, true}) {
    CacheOptions options{.geometry = HeadGeometry::uniform(3, 2, 8, 16, CacheType::kF32)};
    options.shared = false;
    options.track_rank = ranks;
    options.page_size = 32;
    Cache cache(options);
    Victims plan;
    plan.drop.resize(6);
    for (int tokens = 1; tokens <= 500; ++tokens) {
      if (cache.occupied() == 100) {
        for (int t = 0; t < 6; ++t) plan.drop[static_cast<std::size_t>(t)] = {(tokens * 31 + t * 17) % 100};
        cache.apply(plan);
      }
      cache.insert(1);
      const Footprint f = footprint(options, {.tokens = std::min(tokens, 100)});
      ASSERT_EQ(cache.bytes_in_use(), f.in_use());
      ASSERT_EQ(cache.bytes_tables(), f.bookkeeping());
    }
  }
}

// Computed by hand: 3 layers x 2 heads, budget 100 in pages of 32: 4 pages, 128 slots.
TEST(Footprint, TermsByHand) {
  CacheOptions options{.geometry = HeadGeometry::uniform(3, 2, 8, 16)};
  options.page_size = 32;
  Footprint f = footprint(options, {.tokens = 100});
  EXPECT_EQ(f.rows, 3u * 2 * 128 * (8 + 16) * 2);
  EXPECT_EQ(f.columns, 128u * (4 + 4));
  EXPECT_EQ(f.counts, 4u * 4);
  EXPECT_EQ(f.queues, 64u * 4);
  EXPECT_EQ(f.blocks, 3u * 2 * 4 * sizeof(PageId));
  EXPECT_EQ(f.in_use() + f.bookkeeping(), f.rows + f.columns + f.counts + f.queues + f.blocks);
  EXPECT_EQ(f.total(), f.in_use() + f.bookkeeping() + f.working);

  options.rotated_half = true;
  EXPECT_EQ(footprint(options, {.tokens = 100}).rows, 3u * 2 * 128 * (8 + 8 + 16) * 2);
  options.rotated_half = false;

  CacheOptions mixed = options;
  mixed.geometry = HeadGeometry::uniform(3, 2, 8, 32).with_types(CacheType::kF32, CacheType::kQ8_0);
  EXPECT_EQ(footprint(mixed, {.tokens = 100}).rows, 3u * 2 * 128 * (8 * 4 + 32 + 2));

  options.shared = false;
  options.track_rank = true;
  options.mechanism = Mechanism::kShift;
  f = footprint(options, {.tokens = 100});
  EXPECT_EQ(f.columns, 6u * 128 * (4 + 4 + 4));
  EXPECT_EQ(f.counts, 6u * 4 * 4);
  EXPECT_EQ(f.queues, 0u);
  EXPECT_EQ(footprint(options, {.tokens = 0}).in_use() + footprint(options, {.tokens = 0}).bookkeeping(), 0u);
  options.columns = 8;
  EXPECT_EQ(footprint(options, {.tokens = 100}).columns, 6u * 128 * (4 + 4 + 4 + 8 * 4));
}

}  // namespace
}  // namespace palimpsest::testing
