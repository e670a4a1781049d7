// Each row of the legality table has an example that violates it; rows without an example fail the test.
#include "palimpsest/evict/legality.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "palimpsest/evict/method_plan.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

Signals snapkv() {
  return {.attention_window = AttentionWindow{.queries = 32}, .ordered = true};
}

struct Example {
  std::string_view row, method;
  Signals signals = {};
  std::function<void(PlanTarget&)> change = [](PlanTarget&) {};  // to a target on which every method is legal
  int budget = 64, page_size = 16;                               // of a head
  long long tokens = 0;                                          // of a head, in an eviction
};

const std::vector<Example>& examples() {
  static const Signals sum{.attention_sum = AttentionSum{}}, keys{.keys = Keys{}};
  static const std::vector<Example> list = {
      {"budget: policy", "full:budget=256"},
      {"protection: policy", "full:sinks=4"},
      {"every: policy", "full:every=2"},
      {"schedule: policy", "full:slack=2"},
      {"policy: budget", "streaming:budget=0"},
      {"protection: budget", "streaming:budget=4"},
      {"every: range", "streaming:budget=1073741824"},
      {"every: schedule", "streaming:schedule=page,every=2"},
      {"max-drop: every", "lazy:max-drop=1"},
      {"max-drop: schedule", "snapkv:max-drop=8"},
      {"prompt-max: schedule", "h2o:prompt-max=512"},
      {"prompt-max: budget", "snapkv:schedule=prompt+step,prompt-max=100"},
      {"block: schedule", "paged-eviction:every=16"},
      {"ada: max-drop", "adakv:schedule=step,max-drop=4"},
      {"ada: one token per slot", "adakv:schedule=page,mechanism=append"},
      {"ada: mechanism", "adakv:mechanism=block"},
      {"gamma: range", "ems:gamma=4097"},
      {"page: mechanism", "h2o:page=16"},
      {"page: multiple of 8", "paged-eviction:page=12"},
      {"page score: norms", "knorm:mechanism=block,page-score=norms"},
      {"merge: policy", "full:mechanism=merge"},
      {"own places: join", "cam:merge-position=own"},
      {"own positions: original", "ems:merge-position=own,positions=cache"},
      {"merge: rotation", "ems:positions=cache,rerotate=cached-half"},
      {"clusters: join", "cam:similarity=key"},
      {"options: policy", "h2o:window=16"},
      {"match: policy", "full:mechanism=match"},
      {"match: interval", "h2o:mechanism=match"},
      {"match: positions", "streaming:mechanism=match,every=16"},
      {"merge: range", "ems:budget=536870912"},
      {"rerotate: positions", "h2o:rerotate=fused"},
      {"auto positions: rotated on read", "streaming:budget=64,positions=auto"},
      {"two-query: window", "h2o:positions=cache,rerotate=two-query"},
      {"delta: moves", "streaming:rerotate=delta"},
      {"no cache: baseline", "window-recompute:every=4"},

      {"recall: policy", "full:recall=4"},
      {"recall: heads", "h2o:recall=4,recall-heads=0"},
      {"recall: shares of heads", "h2o:recall=4,recall-heads=0.5", sum},
      {"recall: positions", "streaming:recall=4"},
      {"recall: mechanism", "ems:recall=4"},
      {"recall: device", "h2o:recall=4", sum, [](PlanTarget& t) { t.shape.pages = false; }},
      {"recall: own caches", "h2o:recall=4", sum, [](PlanTarget& t) { t.shares_layers = true; }},
      {"recall: positions of the model", "h2o:recall=4", sum,
       [](PlanTarget& t) { t.positions = PositionKind::kAlibi; }},
      {"recall: type", "h2o:recall=4", sum,
       [](PlanTarget& t) { t.shape.geometry = HeadGeometry::uniform(2, 2, 40, 40); }},
      {"recall: one sequence", "h2o:recall=4", sum},
      {"recall: drafts", "snapkv:recall=4", snapkv(), [](PlanTarget& t) { t.draft_max = 4; }},
      {"lossless: policy", "full:lossless=true"},
      {"lossless: positions", "streaming:lossless=true"},
      {"lossless: mechanism", "ems:lossless=true"},
      {"lossless: one sequence", "h2o:lossless=true", sum},
      {"lossless: two caches", "h2o:lossless=true", sum},
      {"lossless: device", "h2o:lossless=true", sum,
       [](PlanTarget& t) {
         t.beside_full = true;
         t.shape.pages = false;
       }},
      {"lossless: windows", "h2o:lossless=true", sum,
       [](PlanTarget& t) {
         t.beside_full = true;
         t.shape.geometry = t.shape.geometry.with_windows(std::vector<std::int32_t>{INT32_MAX, 24});
       }},
      {"lossless: state", "h2o:lossless=true", sum,
       [](PlanTarget& t) {
         t.beside_full = true;
         t.shape.state_floats = 8;
       }},
      {"lossless: whole steps", "snapkv:lossless=true", snapkv(),
       [](PlanTarget& t) { t.beside_full = t.layerwise = true; }},
      {"pin=prompt: known prompt", "h2o:pin=prompt", sum},
      {"scorer: policy", "h2o:scorer=file", sum},
      {"look ahead: positions", "expected-attention:positions=cache", {.query_moments = QueryMoments{}}},
      {"query moments: keys", "expected-attention", {.query_moments = QueryMoments{}}},
      {"repeat: whole prompts",
       "kvzip:schedule=prompt+step,prompt-max=512",
       {.attention_max = AttentionMax{}, .repeat = true}},
      {"repeat: schedule", "kvzip:schedule=step", {.attention_max = AttentionMax{}, .repeat = true}},
      {"repeat: weights", "kvzip", {.attention_window = AttentionWindow{.queries = 8}, .repeat = true}},
      {"maximum of all queries", "h2o", {.attention_sum = AttentionSum{}, .attention_max = AttentionMax{}}},
      {"ada: scores of each head", "adakv", {}},
      {"score on insert: rows", "knorm", {.keys = Keys{}, .ordered = true, .score_on_insert = true}},
      {"insert score: attention window", "h2o", {.keys = Keys{}, .insert_score = InsertScore{}}},
      {"rows: window", "keydiff", {.attention_sum = AttentionSum{}, .keys = Keys{}}},
      {"ordered: decision", "h2o", {.attention_sum = AttentionSum{}, .ordered = true}},
      {"window: length", "snapkv", {.attention_window = AttentionWindow{}}},
      {"sums, merge: mean weights", "ems", {.attention_window = AttentionWindow{.queries = 8, .group_max = true}}},
      {"sums: each head",
       "tova",
       {.attention_sum = AttentionSum{}, .attention_window = AttentionWindow{.queries = 1, .whole_layer = true}}},
      {"join next: sums", "cam", snapkv()},
      {"merge: attention window", "ems", sum},
      {"whole layer: split",
       "tova:split=pyramid",
       {.attention_window = AttentionWindow{.queries = 1, .whole_layer = true}}},

      {"chunk: range", "full", {}, [](PlanTarget& t) { t.chunk = 0; }},
      {"cache positions: not learned", "streaming", {}, [](PlanTarget& t) { t.positions = PositionKind::kLearned; }},
      {"second query: scores by distance", "streaming", {}, [](PlanTarget& t) { t.scores_by_position = true; }},
      {"look ahead: scores by distance",
       "expected-attention",
       {.query_moments = QueryMoments{}, .keys = Keys{}},
       [](PlanTarget& t) { t.scores_by_position = true; }},
      {"page: cache pages", "paged-eviction:page=24"},
      {"keys rotated again: exact type",
       "compact-shift",
       {},
       [](PlanTarget& t) { t.shape.geometry = t.shape.geometry.with_types(CacheType::kQ8_0, CacheType::kQ8_0); }},
      {"rotated halves: exact type",
       "h2o:positions=cache,rerotate=cached-half",
       {},
       [](PlanTarget& t) { t.shape.geometry = t.shape.geometry.with_types(CacheType::kQ8_0, CacheType::kQ8_0); }},
      {"device: cache type",
       "streaming",
       {},
       [](PlanTarget& t) {
         t.shape.pages = false;
         t.shape.geometry = t.shape.geometry.with_types(CacheType::kQ8_0, CacheType::kQ4);
       }},
      {"host pages", "peak", {.attention_max = AttentionMax{}}, [](PlanTarget& t) { t.shape.pages = false; }},
      {"rows: one rotation", "compact-shift", keys},
      {"split: file beside the model", "duo", {}},
      {"shared steps: a cache", "window-recompute", {}},
      {"shared pages: one size", "streaming:rerotate=cached-half", {}, [](PlanTarget& t) { t.shares_pages = true; }},
      {"match: own caches", "snapkv:mechanism=match", {}, [](PlanTarget& t) { t.shares_layers = true; }},
      {"drafts: a cache", "window-recompute", {}, [](PlanTarget& t) { t.draft_max = 4; }},
      {"drafts: own caches",
       "full",
       {},
       [](PlanTarget& t) {
         t.draft_max = 4;
         t.shares_layers = true;
       }},
      {"drafts: device", "h2o:every=8", sum,
       [](PlanTarget& t) {
         t.draft_max = 4;
         t.shape.pages = false;
       }},
      {"drafts: query group",
       "full",
       {},
       [](PlanTarget& t) {
         t.draft_max = 4;
         t.shape.geometry = HeadGeometry::uniform(2, 1, 32, 32, CacheType::kF16, 33);
       }},
      {"drafts: interval", "h2o:mechanism=append", sum, [](PlanTarget& t) { t.draft_max = 4; }},
      {"drafts: mechanism", "streaming:mechanism=shift", {}, [](PlanTarget& t) { t.draft_max = 4; }},
      {"drafts: ranks", "streaming:rerotate=fused", {}, [](PlanTarget& t) { t.draft_max = 4; }},

      {"layerwise: schedule", "h2o", sum, [](PlanTarget& t) { t.layerwise = true; }},
      {"layerwise: whole prompts", "snapkv:schedule=prompt+step,prompt-max=512", snapkv(),
       [](PlanTarget& t) { t.layerwise = true; }},
      {"layerwise: one reading",
       "kvzip",
       {.attention_max = AttentionMax{}, .repeat = true},
       [](PlanTarget& t) { t.layerwise = true; }},
      {"layerwise: host pages", "snapkv", snapkv(),
       [](PlanTarget& t) {
         t.layerwise = true;
         t.shape.pages = false;
       }},
      {"layerwise: windows of layers", "snapkv", snapkv(),
       [](PlanTarget& t) {
         t.layerwise = true;
         t.shape.geometry = t.shape.geometry.with_windows(std::vector<std::int32_t>{INT32_MAX, 24});
       }},
      {"layerwise: recurrent layers", "snapkv", snapkv(),
       [](PlanTarget& t) {
         t.layerwise = true;
         t.shape.state_floats = 8;
       }},
      {"layerwise: one stream", "snapkv", snapkv(),
       [](PlanTarget& t) {
         t.layerwise = true;
         t.several_streams = true;
       }},
      {"layerwise: own steps", "snapkv", snapkv(),
       [](PlanTarget& t) {
         t.layerwise = true;
         t.shares_steps = true;
       }},

      {"budget: head", "streaming:recent=28", {}, [](PlanTarget&) {}, 32},
      {"block: a page that may be evicted", "paged-eviction:sinks=4", {}, [](PlanTarget&) {}, 47},

      {"comparisons: shared steps",
       "r-kv:schedule=prompt",
       {.attention_window = AttentionWindow{.queries = 8}, .keys = Keys{}, .pairs = true},
       [](PlanTarget& t) { t.shares_steps = true; },
       64,
       16,
       40'000},
  };
  return list;
}

PlanTarget target() {
  return {.shape = {.geometry = HeadGeometry::uniform(2, 2, 32, 32, CacheType::kF16, 2), .page_size = 16},
          .positions = PositionKind::kRotary,
          .trained_context = 2048};
}

TEST(Legality, EachRowHasAnExampleThatBreaksItAlone) {
  std::set<std::string_view> seen;
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.row);
    PlanTarget of = target();
    example.change(of);
    const Method method = parse_method(example.method);
    const Candidate candidate{.method = method,
                              .signals = example.signals,
                              .target = &of,
                              .rule = attention_rule(method, of.positions),
                              .budget = example.budget,
                              .page_size = example.page_size,
                              .tokens = example.tokens};
    const Requirement* row = nullptr;
    for (const Requirement& each : requirements())
      if (each.name == example.row) row = &each;
    ASSERT_NE(row, nullptr);
    EXPECT_TRUE(seen.insert(row->name).second);
    EXPECT_TRUE(row->required(candidate));
    EXPECT_FALSE(row->offered(candidate));
    const std::string sentence = row->sentence(candidate);
    EXPECT_EQ(error_of([&] { check_legal(row->scope, candidate); }), sentence);
    EXPECT_EQ(sentence.find('\n'), std::string::npos);
  }
  for (const Requirement& row : requirements())
    EXPECT_TRUE(seen.contains(row.name) || row.name == "tau: range") << row.name << ": no example";
  Method method;
  method.tau = 2;  // cannot be given as text
  EXPECT_EQ(error_of([&] { validate(method); }), "tau 2: a similarity from 0 to 1");
}

TEST(Legality, PresetsAreLegalOnTheCpu) {
  for (const MethodRow& row : methods()) {
    PlanTarget of = target();
    if (row.preset.split == Split::kDuo) continue;  // needs a list of heads
    EXPECT_NO_THROW(MethodPlan(row.preset, of)) << row.name;
  }
}

// Gemma's layers have windows: no interval helps, other positions do.
TEST(Legality, DraftsWithWindowsOfLayersNameWhatWorks) {
  PlanTarget windows = target();
  windows.shape.geometry = windows.shape.geometry.with_windows(std::vector<std::int32_t>{INT32_MAX, 24});
  PlanTarget none = target();
  windows.draft_max = none.draft_max = 4;
  for (const std::string method : {"auto:budget=64,policy=keydiff", "h2o:budget=64,every=64,positions=cache"}) {
    SCOPED_TRACE(method);
    EXPECT_NO_THROW(MethodPlan(parse_method(method), none));
    EXPECT_EQ(error_of([&] { MethodPlan(parse_method(method), windows); }),
              "drafts with positions=cache, of a model whose layers have attention windows: there each token drops the "
              "oldest, which changes the rotation of all keys, whatever every= is; use positions=original");
    EXPECT_NO_THROW(MethodPlan(parse_method(method + ",positions=original"), windows));
  }
  const std::string fused = "streaming:budget=64,rerotate=fused";
  EXPECT_NE(error_of([&] { MethodPlan(parse_method(fused), none); }).find("use every=5 or more"), std::string::npos);
  EXPECT_NO_THROW(MethodPlan(parse_method(fused + ",every=5"), none));
}

TEST(Legality, BlockNeedsAPageThatMayBeEvicted) {
  const Method m = parse_method("paged-eviction:sinks=4");  // and the newest page
  const auto check = [](const Method& method, int budget, int page_size) {
    check_legal(Scope::kHead, {.method = method, .budget = budget, .page_size = page_size});
  };
  EXPECT_NO_THROW(check(m, 48, 16));
  EXPECT_EQ(
      error_of([&] { check(m, 47, 16); }),
      "budget 47 with mechanism block holds 2 full pages of 16, and sinks 4 + recent 1 may be in 2 of them: raise "
      "it to at least 48, protect fewer tokens or take smaller pages");
  EXPECT_NO_THROW(check(parse_method("streaming:mechanism=block,sinks=0"), 16, 16));
  EXPECT_NO_THROW(check(parse_method("streaming"), 5, 64));
}

}  // namespace
}  // namespace palimpsest::testing
