// The memory map of a session is what the oracle keeps, token by token.
#include "palimpsest/engine/sequence/memory_map.h"

#include <gtest/gtest.h>

#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/exactness/truth.h"
#include "tests/exactness/watch.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<const Model> small_synthetic() {
  static const std::shared_ptr<const Model> model = Model::from(make_synthetic({.vocabulary = 96,
                                                                                .width = 64,
                                                                                .layers = 3,
                                                                                .feed_forward = 96,
                                                                                .query_heads = 4,
                                                                                .kv_heads = 2,
                                                                                .head_dim = 16}));
  return model;
}

// Per token: heads with a slot of its own, heads in which it is merged.
using Counts = std::vector<std::pair<int, int>>;

Counts counts_of(const Truth& truth, int heads, Position next) {
  const auto tables = truth.kept();
  Counts counts(static_cast<std::size_t>(next));
  const int each = heads / static_cast<int>(tables.size());
  for (const auto& table : tables)
    for (const auto& [position, into] : table) {
      auto& [kept, merged] = counts[static_cast<std::size_t>(position)];
      (into == kNoPosition ? kept : merged) += each;
    }
  return counts;
}

void expect_same(const std::string& method) {
  SCOPED_TRACE(method);
  const auto model = small_synthetic();
  const SessionOptions options{
      .method = parse_method(method), .cache_type = CacheType::kF32, .page_size = 16, .chunk = 16};
  constexpr std::size_t kPrompt = 60, kTokens = 140;
  Truth truth(model->hyper(),
              {.method = options.method, .prompt = kPrompt, .model = policy_model(*model, options.method)});
  const auto wrap = [&](std::unique_ptr<AttentionPath> path) -> std::unique_ptr<AttentionPath> {
    return std::make_unique<Watch>(std::move(path), std::vector<Truth*>{&truth});
  };
  Session session(std::make_shared<Decoder>(model, 1, wrap), options);
  session.record_memory();
  const auto tokens = random_tokens(kTokens, 5);
  session.prefill(std::span(tokens).first(kPrompt));
  for (std::size_t i = kPrompt; i < kTokens; ++i) {
    session.decode(tokens[i]);
    const MemoryMap map = session.memory_map();
    const Counts counts = counts_of(truth, map.heads, map.next);
    ASSERT_EQ(map.tokens.size(), counts.size());
    for (std::size_t p = 0; p < counts.size(); ++p) {
      ASSERT_EQ(map.tokens[p].kept, counts[p].first) << "token " << p << " after " << i;
      ASSERT_EQ(map.tokens[p].merged, counts[p].second) << "token " << p << " after " << i;
      ASSERT_EQ(map.tokens[p].id, tokens[p]);
    }
  }
  EXPECT_EQ(truth.verdict().kept_wrong, 0) << truth.verdict().first_wrong;
}

TEST(Memory, TheMapIsWhatTheOracleKeeps) {
  for (const char* method :
       {"full", "streaming:budget=40", "h2o:budget=40", "tova:budget=40", "knorm:budget=40", "ems:budget=40"})
    expect_same(method);
}

}  // namespace
}  // namespace palimpsest::testing
