// The plan's signals by phase, and its bytes.
#include "palimpsest/evict/method_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "palimpsest/evict/evictor.h"
#include "palimpsest/policy/policy.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

// Llama 3.1 8B: 32 layers of 8 KV heads of 128 dimensions, 4 query heads each.
PlanTarget llama_8b() {
  return {.shape = {.geometry = HeadGeometry::uniform(32, 8, 128, 128, CacheType::kF16, 4), .page_size = 64},
          .positions = PositionKind::kRotary};
}

constexpr std::size_t kMB = 1000 * 1000;

// Attention weights that no eviction reads are not collected: with schedule `prompt` none follows the prompt.
TEST(MethodPlan, SignalsRunOnlyWhileTheyCanDecide) {
  for (const char* method : {"snapkv", "pyramidkv", "adakv", "h2o:schedule=prompt", "global-local:schedule=prompt",
                             "tova:schedule=prompt", "r-kv:schedule=prompt,every=1"}) {
    const MethodPlan plan(parse_method(method), llama_8b());
    EXPECT_TRUE(plan.signals(Phase::kPrefill).weights()) << method;
    EXPECT_FALSE(plan.signals(Phase::kDecode).weights()) << method;
    EXPECT_EQ(plan.cache().columns, plan.signals().columns()) << method;
  }
  for (const char* method : {"h2o", "snapkv:schedule=step", "snapkv:schedule=prompt+step", "ems", "cam", "tova"})
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode})
      EXPECT_EQ(MethodPlan(parse_method(method), llama_8b()).signals(phase),
                MethodPlan(parse_method(method), llama_8b()).signals())
          << method;

  const MethodPlan expected(parse_method("expected-attention:schedule=prompt,every=1"), llama_8b());
  EXPECT_TRUE(expected.signals(Phase::kPrefill).query_moments);
  EXPECT_FALSE(expected.signals(Phase::kDecode).query_moments);

  for (const char* method : {"kvzip", "kvzip:schedule=prompt+step"}) {  // weights of the repetition only
    const MethodPlan plan(parse_method(method), llama_8b());
    EXPECT_FALSE(plan.signals(Phase::kPrefill).weights()) << method;
    EXPECT_TRUE(plan.signals(Phase::kRepeat).attention_max) << method;
    EXPECT_FALSE(plan.signals(Phase::kDecode).weights()) << method;
  }
  // Scores on insert are computed in every phase; the end of a later prompt may need them.
  const MethodPlan knorm(parse_method("knorm:schedule=prompt"), llama_8b());
  EXPECT_TRUE(knorm.signals(Phase::kDecode).score_on_insert);
  EXPECT_TRUE(knorm.signals(Phase::kDecode).keys);
}

// Each signal has its own memory, for every policy.
TEST(MethodPlan, SignalsOwnTheirColumns) {
  EXPECT_EQ(Signals{}.columns(), 0);
  EXPECT_EQ((Signals{.attention_sum = AttentionSum{}}).columns(), 0);
  EXPECT_EQ((Signals{.attention_window = AttentionWindow{.queries = 1}}).columns(), 1);
  EXPECT_EQ((Signals{.attention_window = AttentionWindow{.queries = 32}}).columns(), 8);
  EXPECT_EQ((Signals{.attention_window = AttentionWindow{.queries = 32, .past = true}}).columns(), 2);
  const Signals both{.attention_sum = AttentionSum{}, .attention_window = AttentionWindow{.queries = 32, .past = true}};
  EXPECT_EQ(both.columns(), 3);
  EXPECT_EQ(both.sum_column(), 2);
  EXPECT_EQ((Signals{.query_moments = QueryMoments{}}).head_floats(4, 128), 4u * (1 + 128 + 128 * 128));
}

// 32 layers x 32 query heads x (1 + 128 + 128 x 128) floats: 68 MB per sequence of any length.
TEST(MethodPlan, CountsStatisticsOfQueries) {
  const MethodPlan plan(parse_method("expected-attention"), llama_8b());
  const PlanBytes bytes = plan.bytes(10, 20);
  EXPECT_EQ(bytes.statistics, 32u * 32 * (1 + 128 + 128 * 128) * 4);
  EXPECT_GT(bytes.statistics, 67 * kMB);
  EXPECT_GT(bytes.total(), bytes.statistics + bytes.pages);
  EXPECT_EQ(MethodPlan(parse_method("h2o"), llama_8b()).bytes(10, 20).statistics, 0u);
}

// At most as many merged tokens as tokens were read, and as gamma allows.
TEST(MethodPlan, CountsMergedTokens) {
  EXPECT_NE(error_of([] {
              MethodPlan(parse_method("ems:budget=64,recent=8,gamma=16000000"), llama_8b());
            }).find("gamma 16000000 is out of range: use 1 to 4096"),
            std::string::npos);
  const MethodPlan plan(parse_method("ems:budget=64,recent=8,gamma=64"), llama_8b());
  const std::size_t few = plan.bytes(100, 200).merged, many = plan.bytes(100, 2000).merged,
                    all = plan.bytes(100, 1000000).merged;
  EXPECT_GT(few, 256u * 136 * sizeof(MergedToken));  // 256 tables
  EXPECT_LT(few, many);
  EXPECT_LT(many, all);
  EXPECT_EQ(plan.bytes(100, -1).merged, all);
  EXPECT_LT(all, 256u * 63 * 64 * 150);
}

// Scratch is the weights of one layer; none for policies without weights.
TEST(MethodPlan, CountsWeights) {
  EXPECT_EQ(MethodPlan(parse_method("streaming"), llama_8b()).bytes(1000, 2000).scratch, 0u);
  EXPECT_EQ(MethodPlan(parse_method("h2o:budget=256"), llama_8b()).bytes(10, -1).scratch, 8u * 256 * 4);
  // A row for each part of the window, and the sum over all queries.
  EXPECT_EQ(MethodPlan(parse_method("snapkv:schedule=step"), llama_8b()).bytes(10, -1).scratch, 8 * 8u * 256 * 4);
  EXPECT_EQ(MethodPlan(parse_method("global-local:schedule=step"), llama_8b()).bytes(10, -1).scratch,
            (2 + 1) * 8u * 256 * 4);
}

// A head whose budget holds its layer's whole window needs no policy, unless the end of a prompt may lower the budget.
TEST(MethodPlan, PolicyAppliesWhereTheWindowMayExceedTheBudget) {
  const std::int32_t windows[] = {64, INT32_MAX};
  const auto plan_of = [&](const char* method) {
    PlanTarget target = llama_8b();
    target.shape.geometry = HeadGeometry::uniform(2, 8, 128, 128, CacheType::kF16, 4).with_windows(windows);
    return MethodPlan(parse_method(method), std::move(target));
  };
  const auto expect = [&](const char* method, bool in_window, bool without) {
    SCOPED_TRACE(method);
    const MethodPlan plan = plan_of(method);
    const Evictor evictor(plan);
    ASSERT_EQ(plan.windows().size(), 16u);
    EXPECT_EQ(plan.windows().front().size, 64);
    EXPECT_EQ(evictor.decides(0), in_window);
    EXPECT_EQ(evictor.decides(15), without);
  };
  expect("h2o:budget=64", false, true);
  expect("h2o:budget=63", true, true);
  expect("snapkv:budget=64", false, true);
  expect("adakv:budget=64", true, true);
  expect("pyramidkv:budget=128", true, true);
  EXPECT_EQ(plan_of("snapkv:budget=64").occupancies(1000, 2000).decode.front().tokens, 64);
  EXPECT_GT(plan_of("adakv:budget=64").occupancies(1000, 2000).decode.front().tokens, 64);
}

// One prepared policy serves all sequences of a plan.
TEST(MethodPlan, SharesItsPolicy) {
  const MethodPlan plan(parse_method("h2o"), llama_8b());
  const Evictor a(plan), b(plan);
  EXPECT_EQ(plan.policy().use_count(), 3);
  EXPECT_EQ(MethodPlan(parse_method("full"), llama_8b()).policy(), nullptr);
}

// Policies that rank a share of the budget apart are told the budgets of their heads.
TEST(MethodPlan, TellsThePolicyTheBudgets) {
  constexpr int kTokens = 300;
  const std::vector<float> attention(kTokens, 0.1F), sizes(kTokens, 1);
  std::vector<Position> position(kTokens);
  std::iota(position.begin(), position.end(), Position{0});
  for (const char* text : {"critical:budget=200,first=0.5", "pyramidkv:policy=critical,budget=200,first=0.5",
                           "vase:budget=200,large=0.5"}) {
    const MethodPlan plan(parse_method(text), llama_8b());
    std::set<long> counts;
    for (const int head : {0, 100, 255}) {
      std::vector<float> score(kTokens);
      plan.policy()->score({.position = position, .attention = attention, .insert_score = sizes, .table = head}, score);
      counts.insert(std::ranges::count_if(score, [](float x) { return x > 1e29F; }));
      EXPECT_TRUE(counts.contains((plan.budgets().empty() ? 200 : plan.budgets()[at(head)]) / 2))
          << text << " " << head;
    }
    EXPECT_EQ(counts.size(), plan.budgets().empty() ? 1U : 3U) << text;
  }
}

}  // namespace
}  // namespace palimpsest::testing
