#include "palimpsest/evict/evictor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>

#include "tests/support/error_of.h"
#include "tests/support/evictor_of.h"

namespace palimpsest::testing {
namespace {

CacheOptions bookkeeping(const Method& method, bool shared = true) {
  return {.geometry = HeadGeometry::uniform(2, 2, 4, 4),
          .page_size = 16,
          .mechanism = method.mechanism,
          .shared = shared,
          .pages = false};
}

std::vector<Position> kept(const SlotTable& table) {
  std::vector<Position> positions(table.position().begin(), table.position().end());
  std::erase(positions, kNoPosition);
  std::ranges::sort(positions);
  return positions;
}

// StreamingLLM's set after `next` tokens: sinks and the newest, `budget` in total.
std::vector<Position> streaming_set(Position next, int sinks, int budget) {
  std::vector<Position> positions;
  for (Position p = 0; p < next; ++p)
    if (p < sinks || p >= next - (budget - sinks)) positions.push_back(p);
  return positions;
}

struct Case {
  const char* method;
  bool shared;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.method << (c.shared ? "" : " per head");
}

class Streaming : public ::testing::TestWithParam<Case> {};

TEST_P(Streaming, KeepsSinksAndWindowInEveryStep) {
  const Method method = parse_method(GetParam().method);
  Cache cache(bookkeeping(method, GetParam().shared));
  Evictor evictor = evictor_of(method);
  const int prompt = 100;
  cache.apply(evictor.plan(cache, 1));
  cache.insert(prompt);  // a chunk may exceed the budget during its step, not after it
  cache.apply(evictor.plan(cache, 0));
  const long long to_drop = std::max(0, prompt - method.budget);
  EXPECT_EQ(cache.evicted(), to_drop);
  for (int step = 0; step < 1000; ++step) {
    cache.apply(evictor.plan(cache, 1));
    cache.insert(1);
    for (int t = 0; t < cache.tables(); ++t)
      ASSERT_EQ(kept(cache.table(t)), streaming_set(cache.next(), method.sinks(), method.budget))
          << "step " << step << " table " << t;
  }
  EXPECT_EQ(cache.evicted(), prompt + 1000 - method.budget);
}

INSTANTIATE_TEST_SUITE_P(Methods, Streaming,
                         ::testing::Values(Case{"streaming:budget=64", true}, Case{"streaming:budget=64", false},
                                           Case{"streaming:budget=37,mechanism=shift", true},
                                           Case{"streaming:budget=5", true},
                                           Case{"streaming:budget=1,sinks=0,mechanism=shift", true},
                                           Case{"streaming:budget=200,sinks=0", true},
                                           Case{"streaming:budget=64,recent=59", true}));

// The mechanism does not change the kept set.
TEST(Evictor, InPlaceAndShiftKeepTheSame) {
  for (const char* text :
       {"streaming:budget=50", "streaming:budget=50,every=7", "streaming:budget=50,recent=3,sinks=9"}) {
    Method method = parse_method(text);
    Cache in_place(bookkeeping(method));
    set_option(method, "mechanism", "shift");
    Cache shift(bookkeeping(method));
    Evictor evictor = evictor_of(method);
    for (int step = 0; step < 600; ++step) {
      for (Cache* cache : {&in_place, &shift}) {
        cache->apply(evictor.plan(*cache, 1));
        cache->insert(step % 100 == 0 ? 130 : 1);
      }
      ASSERT_EQ(kept(in_place.table(0)), kept(shift.table(0))) << text << " step " << step;
    }
    EXPECT_EQ(in_place.evicted(), shift.evicted());
  }
}

TEST(Evictor, FullDropsNothing) {
  const Method method = parse_method("full");
  Cache cache(bookkeeping(method));
  Evictor evictor = evictor_of(method);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(evictor.plan(cache, 0).empty());
    cache.insert(7);
  }
  EXPECT_EQ(cache.occupied(), 700);
}

TEST(Evictor, EveryWaitsAndThenDropsAtOnce) {
  const Method method = parse_method("streaming:budget=32,every=8");
  Cache cache(bookkeeping(method));
  Evictor evictor = evictor_of(method);
  cache.insert(31);
  std::vector<int> dropped;
  for (int step = 0; step < 32; ++step) {
    const Victims& plan = evictor.plan(cache, 1);
    dropped.push_back(static_cast<int>(plan.drop[0].size()));
    cache.apply(plan);
    cache.insert(1);
    EXPECT_LE(cache.occupied(), 32 + 7);
  }
  for (int step = 0; step < 32; ++step) EXPECT_EQ(dropped[step], step > 0 && step % 8 == 0 ? 8 : 0) << step;
  EXPECT_EQ(kept(cache.table(0)), streaming_set(cache.next(), 4, cache.occupied()));
}

TEST(Evictor, VictimsAreGivenOldestFirst) {
  const Method method = parse_method("streaming:budget=16");
  Cache cache(bookkeeping(method));
  Evictor evictor = evictor_of(method);
  cache.insert(40);
  const auto& victims = evictor.plan(cache, 0).drop[0];
  ASSERT_EQ(victims.size(), 24u);
  for (std::size_t i = 0; i < victims.size(); ++i)
    EXPECT_EQ(cache.table(0).position()[static_cast<std::size_t>(victims[i])], static_cast<Position>(4 + i));
}

// Evicts the lowest score first, but no protected token.
class Backwards final : public Policy {
 public:
  Signals signals() const override { return {}; }
  void score(const HeadView& head, std::span<float> score) const override {
    for (std::size_t i = 0; i < score.size(); ++i) score[i] = -static_cast<float>(head.position[i]);
  }
};
PALIMPSEST_POLICY(backwards, Backwards, "the oldest tokens")

TEST(Evictor, ProtectionHoldsAgainstAnyPolicy) {
  register_policy(policy_entry_backwards("test-backwards"));
  const Method method = parse_method("full:policy=test-backwards,budget=20,sinks=3,recent=6");
  Cache cache(bookkeeping(method));
  Evictor evictor = evictor_of(method);
  cache.insert(50);
  cache.apply(evictor.plan(cache, 0));
  std::vector<Position> want;  // the policy would keep 0..19; the newest six are protected
  for (Position p = 0; p < 14; ++p) want.push_back(p);
  for (Position p = 44; p < 50; ++p) want.push_back(p);
  EXPECT_EQ(kept(cache.table(0)), want);
  Evictor min = evictor_of(parse_method("full:policy=test-backwards,budget=10,sinks=3,recent=6"));
  cache.apply(min.plan(cache, 1));
  EXPECT_EQ(kept(cache.table(0)), (std::vector<Position>{0, 1, 2, 44, 45, 46, 47, 48, 49}));
}

// Evicts whole pages with the lowest mean score; none that holds a sink or the newest token.
TEST(Evictor, PinsHoldAgainstAnyPolicy) {
  for (const char* text :
       {"random:budget=40,sinks=0,recent=3,pin=9-17", "streaming:budget=40,pin=0-5+50-53",
        "streaming:budget=40,every=7,pin=9-9+11-12+90-99", "random:budget=40,recent=0,mechanism=shift,pin=20-29"}) {
    SCOPED_TRACE(text);
    const Method method = parse_method(text);
    Cache cache(bookkeeping(method, true));
    Evictor evictor = evictor_of(method);
    for (int step = 0; step < 300; ++step) {
      cache.apply(evictor.plan(cache, 1));
      cache.insert(step % 50 == 0 ? 9 : 1);
      for (int t = 0; t < cache.tables(); ++t) {
        const auto tokens = kept(cache.table(t));
        for (const PositionRange& pin : method.protection.pins)
          for (Position p = pin.first; p < std::min(pin.last, cache.next()); ++p)
            ASSERT_TRUE(std::ranges::find(tokens, p) != tokens.end()) << p << " at step " << step;
      }
    }
    EXPECT_GT(cache.evicted(), 200);
  }
}

TEST(Evictor, BlockDropsThePageOfTheLowestMean) {
  const Method method = parse_method("paged-eviction:budget=64,sinks=3");
  Cache cache(bookkeeping(method, false));
  Evictor evictor = evictor_of(method);
  cache.apply(evictor.plan(cache, 1, Phase::kPrefill));
  cache.insert(64);
  cache.apply(evictor.plan(cache, 0, Phase::kPrefillEnd));
  EXPECT_EQ(cache.occupied(), 64);
  for (int t = 0; t < cache.tables(); ++t)
    for (int s = 0; s < 64; ++s)  // lowest: the first and the last page, then 2 or 1
      cache.table(t).score()[static_cast<std::size_t>(s)] =
          s / 16 == 0 || s / 16 == 3 ? 0.0F : static_cast<float>(s % 16) + (s / 16 == 1 + t % 2 ? 5.0F : 0.0F);
  const Victims& plan = evictor.plan(cache, 1);
  for (int t = 0; t < cache.tables(); ++t) {
    const int first = t % 2 == 0 ? 32 : 16;
    const auto& victims = plan.drop[static_cast<std::size_t>(t)];
    ASSERT_EQ(victims.size(), 16u);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(victims[static_cast<std::size_t>(i)], first + i);
  }
  cache.apply(plan);
  EXPECT_TRUE(cache.moves(0).empty());
  for (int step = 0; step < 16; ++step) {
    EXPECT_EQ(cache.occupied(), 48 + step);
    EXPECT_TRUE(evictor.plan(cache, 1).empty()) << step;
    cache.insert(1);
    EXPECT_EQ(cache.table(0).mapped_pages(), 4);
  }
  EXPECT_FALSE(evictor.plan(cache, 1).empty());
}

// A score on insert is written to its token's slot, whichever slots the new tokens took.
TEST(Evictor, ScoresOfBirthTravelWithTheirTokens) {
  const Method method = parse_method("knorm:budget=20,sinks=0,recent=0");
  Cache cache(bookkeeping(method, false));
  Evictor evictor = evictor_of(method);
  std::vector<float> norms;  // by position
  for (int step = 0; step < 300; ++step) {
    const int count = step % 3 == 0 ? 4 : 1;
    cache.apply(evictor.plan(cache, 1));
    cache.insert(count);
    std::vector<float> keys;
    for (int i = 0; i < count; ++i) {
      norms.push_back(static_cast<float>((norms.size() * 7919) % 1000));
      keys.insert(keys.end(), {0, norms.back(), 0, 0});
    }
    for (int t = 0; t < cache.tables(); ++t) evictor.on_insert_kv(cache, t, {keys.data(), count, 4, 4}, {});
    cache.apply(evictor.plan(cache, 0));
    for (int t = 0; t < cache.tables(); ++t) {
      std::vector<float> lowest = norms, ours;
      for (const Position p : kept(cache.table(t))) ours.push_back(norms[static_cast<std::size_t>(p)]);
      std::ranges::sort(lowest);
      std::ranges::sort(ours);
      const std::size_t sure = std::min<std::size_t>(norms.size(), 19);  // a step leaves room for one
      lowest.resize(sure);
      ours.resize(sure);
      ASSERT_EQ(ours, lowest) << step;
    }
  }
}

// A policy with signals `values` gets no keys.
class Blind final : public Policy {
 public:
  Signals signals() const override { return {.values = Values{}, .ordered = true}; }
  void score(const HeadView& head, std::span<float> score) const override {
    EXPECT_TRUE(head.attention.empty() && head.attention_sum.empty() && head.keys.empty());
    EXPECT_EQ(head.values.count, static_cast<int>(score.size()));
  }
};
PALIMPSEST_POLICY(blind, Blind, "sees values")

// A policy does not get input that another sequence's policy had on the same thread.
TEST(Evictor, ShowsWhatWasAskedForAndNothingElse) {
  register_policy(policy_entry_blind("test-blind"));
  const auto score_table = [](const char* name, int tokens) {
    const Method method = parse_method(name);
    Evictor evictor = evictor_of(method);
    CacheOptions options = bookkeeping(method, false);
    options.columns = evictor.signals().columns();
    Cache cache(options);
    cache.apply(evictor.plan(cache, 1));
    cache.insert(tokens);
    const std::vector<float> values(static_cast<std::size_t>(cache.table(0).slots()) * 4, 1);
    const Rows rows{values.data(), evictor.signals().values ? cache.table(0).slots() : 0, 4, 4};
    evictor.score_table(cache, 0, {}, rows, 0, Phase::kPrefillEnd, {});
  };
  score_table("snapkv:budget=40,schedule=step", 60);
  score_table("full:policy=test-blind,budget=40", 100);
}

class Greedy final : public Policy {
 public:
  Signals signals() const override { return {.query_moments = QueryMoments{}}; }
  void score(const HeadView&, std::span<float>) const override {}
};
PALIMPSEST_POLICY(greedy, Greedy, "asks for what is not there")

TEST(Evictor, RefusesWhatItCannotFeed) {
  register_policy(policy_entry_greedy("test-greedy"));
  Method method = parse_method("full:policy=test-greedy,budget=20");
  EXPECT_NE(error_of([&] { evictor_of(method); }).find("policy test-greedy asks for queries"), std::string::npos);
  method.budget = 0;
  EXPECT_EQ(error_of([&] { evictor_of(method); }), "policy test-greedy needs a budget: give one of at least 1");
}

}  // namespace
}  // namespace palimpsest::testing
