// The plan's bytes bound those that a sequence takes: from operator new, and in pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/engine/sequence/step_loop.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/allocations.h"
#include "tests/support/scorer_file.h"

namespace palimpsest::testing {
namespace {

constexpr int kPrompt = 700, kTokens = 200, kPlanVocabulary = 64;

std::shared_ptr<Decoder> decoder() {
  static const auto one = std::make_shared<Decoder>(Model::from(make_synthetic({.vocabulary = kPlanVocabulary,
                                                                                .width = 64,
                                                                                .layers = 3,
                                                                                .feed_forward = 32,
                                                                                .query_heads = 4,
                                                                                .kv_heads = 2,
                                                                                .head_dim = 64})),
                                                    1);
  return one;
}

StepLoop& loop() {
  static StepLoop one(decoder());
  return one;
}

struct Taken {
  std::size_t heap = 0, pages = 0;
};

// A prompt and tokens after it, stepped as by a session and the scheduler.
Taken live_through(const SessionOptions& options, const std::shared_ptr<const MethodPlan>& plan,
                   const std::shared_ptr<PagePool>& pool) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < kPrompt; ++i) prompt.push_back(static_cast<TokenId>((i * 37 + i / 7) % kPlanVocabulary));
  const long long before = heap_bytes();
  begin_heap_peak();
  Sequence sequence(*decoder(), options, plan, nullptr, pool);
  const auto run = [&] {
    StepShare share{.sequence = &sequence}, *const one = &share;
    loop().run_or_throw({&one, 1});
  };
  sequence.read(prompt);
  while (sequence.stage() != Sequence::Stage::kIdle) run();
  const std::vector<TokenId> drafts(static_cast<std::size_t>(options.draft_max), 1);
  for (int i = 0; i < kTokens; ++i) {
    sequence.read(prompt[static_cast<std::size_t>(i)], drafts);
    run();
    sequence.accept(0);
  }
  return {.heap = static_cast<std::size_t>(heap_peak() - before), .pages = sequence.cache().bytes_peak()};
}

void expect_bytes_of_plan(const std::string& method, bool layerwise) {
  SessionOptions options;
  options.method = parse_method(method);
  options.chunk = 128;
  options.layerwise = layerwise;
  const auto plan = std::make_shared<MethodPlan>(options.method, plan_target(*decoder(), options));
  const auto pool = std::make_shared<PagePool>(page_bytes(Cache(plan->cache()).view(0)));
  live_through(options, plan, pool);  // buffers that threads keep
  const Taken taken = live_through(options, plan, pool);
  const palimpsest::PlanBytes counted = plan->bytes(kPrompt, kPrompt + kTokens);
  const std::size_t real = taken.heap + taken.pages;
  ::testing::Test::RecordProperty("share",
                                  std::to_string(static_cast<double>(real) / static_cast<double>(counted.total())));
  EXPECT_LE(taken.pages, counted.pages);
  EXPECT_LE(taken.heap, counted.total() - counted.pages);
  // Merged tokens count with the worst case: clusters of any size.
  double share = counted.merged > 0 ? 0.75 : 0.9;
  if (layerwise) share = options.method.split == Split::kPyramid ? 0.6 : 0.75;  // terms reach their max at other times
  EXPECT_GE(static_cast<double>(real), share * static_cast<double>(counted.total()))
      << "heap " << taken.heap << " of " << counted.total() - counted.pages << ", pages " << taken.pages << " of "
      << counted.pages;
}

class PlanBytes : public ::testing::TestWithParam<std::string> {};
TEST_P(PlanBytes, AreWhatASequenceTakes) {
  expect_bytes_of_plan(GetParam(), false);
}

class LayerwiseBytes : public ::testing::TestWithParam<std::string> {};
TEST_P(LayerwiseBytes, AreWhatASequenceTakes) {
  expect_bytes_of_plan(GetParam(), true);
}

class DraftBytes : public ::testing::TestWithParam<std::string> {};

// Signals of drafts are held until they are accepted.
TEST_P(DraftBytes, AreInThePlan) {
  SessionOptions options;
  options.method = parse_method(GetParam());
  options.chunk = 128;
  options.draft_max = 15;
  const auto plan = std::make_shared<MethodPlan>(options.method, plan_target(*decoder(), options));
  const auto pool = std::make_shared<PagePool>(page_bytes(Cache(plan->cache()).view(0)));
  live_through(options, plan, pool);  // buffers that threads keep
  const Taken taken = live_through(options, plan, pool);
  const palimpsest::PlanBytes counted = plan->bytes(kPrompt, kPrompt + kTokens);
  EXPECT_LE(taken.pages, counted.pages);
  EXPECT_LE(taken.heap, counted.total() - counted.pages);
  // The logits of drafts are the decoder's, in memory of ggml's.
  options.draft_max = 0;
  const MethodPlan without(options.method, plan_target(*decoder(), options));
  EXPECT_GE(counted.scratch, without.bytes(kPrompt, kPrompt + kTokens).scratch + 15 * kPlanVocabulary * sizeof(float));
}
INSTANTIATE_TEST_SUITE_P(Methods, DraftBytes,
                         ::testing::Values("full", "streaming", "h2o:every=16", "snapkv",
                                           "snapkv:schedule=step,every=16", "knorm:every=16",
                                           "expected-attention:every=16", "paged-eviction",
                                           "ems:schedule=step,every=16", "h2o:mechanism=match,every=16",
                                           "adakv:schedule=prompt+step,every=16"));

std::vector<std::string> all_methods() {
  std::vector<std::string> out;
  for (const MethodRow& row : methods())
    if (row.preset.split != Split::kDuo && !needs_scorer(row.preset) && row.preset.cache) out.emplace_back(row.name);
  for (const char* more :
       {"streaming:rerotate=fused", "streaming:rerotate=cached-half", "h2o:mechanism=shift,positions=cache",
        "h2o:mechanism=gather", "snapkv:schedule=step", "snapkv:schedule=prompt+step", "ems:gamma=64",
        "ems:tau=0,schedule=step", "ems:tau=0,merge-position=own", "h2o:schedule=page",
        "streaming:split=pyramid,sinks=2", "adakv:schedule=prompt+step"})
    out.emplace_back(more);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Methods, PlanBytes, ::testing::ValuesIn(all_methods()));
INSTANTIATE_TEST_SUITE_P(Methods, LayerwiseBytes,
                         ::testing::Values("snapkv", "snapkv:mechanism=gather", "snapkv:mechanism=shift",
                                           "h2o:schedule=prompt+step", "global-local", "paged-eviction", "adakv",
                                           "pyramidkv", "ems", "keydiff:schedule=prompt",
                                           "streaming:schedule=prompt+step"));

}  // namespace
}  // namespace palimpsest::testing
