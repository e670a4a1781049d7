// Which queries a policy's window counts in a session. A query's weights sum to 1, so the sum of a window's weights
// over all tokens is the number of queries.
#include <gtest/gtest.h>

#include <numeric>

#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/evict/attention_window.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

class QueryWindow : public ::testing::Test {
 protected:
  static SyntheticShape shape() {
    SyntheticShape shape = {.width = 64, .feed_forward = 96, .query_heads = 4, .kv_heads = 2, .head_dim = 32};
    shape.vocabulary = 96;
    shape.layers = 2;
    return shape;
  }

  Session session(const std::string& method, int chunk, int draft_max = 0) const {
    SessionOptions options;
    options.method = parse_method(method);
    options.chunk = chunk;
    options.draft_max = draft_max;
    return {decoder_, options};
  }
  static std::vector<float> window(const Session& session, int table) {
    std::vector<float> sum;
    window_sum(session.sequence().plan().signals(), session.cache(), table, sum);
    return sum;
  }
  static double counted(const Session& session, int table) {
    const std::vector<float> sum = window(session, table);
    return std::accumulate(sum.begin(), sum.end(), 0.0);
  }

  std::shared_ptr<Decoder> decoder_ = std::make_shared<Decoder>(Model::from(make_synthetic(shape())), 1);
};

// Prompts around the end of a chunk. The budget holds all tokens, so that nothing is evicted.
TEST_F(QueryWindow, AfterAPromptIsItsLastQueriesWhateverTheChunks) {
  constexpr int kChunk = 64;
  const std::vector<TokenId> text = random_tokens(2 * kChunk, 3);
  for (const auto& [method, queries] : {std::pair("snapkv:budget=500", 32),
                                        {"pyramidkv:budget=500", 32},
                                        {"adakv:budget=500", 32},
                                        {"snapkv:budget=500,schedule=step", 32},
                                        {"global-local:budget=500", 32},
                                        {"ems:budget=500", 32},
                                        {"ems:budget=500,window=16", 16},
                                        {"snapkv:budget=500,window=50", 50},
                                        {"cam:budget=500", 1},
                                        {"r-kv:budget=500", 8}})
    for (const int offset : {-40, -33, -32, -31, -1, 0, 1, 2, 7, 13, 31, 32, 33, 40}) {
      const auto prompt = std::span(text).first(at(kChunk + offset));
      Session whole = session(method, 2 * kChunk);
      whole.prefill(prompt);
      for (const int chunk : {kChunk, 23}) {
        SCOPED_TRACE(::testing::Message() << method << " prompt of " << prompt.size() << " chunk " << chunk);
        Session parts = session(method, chunk);
        parts.prefill(prompt);
        for (int t = 0; t < parts.cache().tables(); ++t) {
          const std::vector<float> ours = window(parts, t), theirs = window(whole, t);
          ASSERT_EQ(ours.size(), theirs.size());
          for (std::size_t slot = 0; slot < ours.size(); ++slot) EXPECT_NEAR(ours[slot], theirs[slot], 1e-5);
          // R-KV takes the max over the query group.
          if (queries == 8) continue;
          EXPECT_NEAR(counted(parts, t), std::min(queries, static_cast<int>(prompt.size())), 1e-4);
        }
      }
    }
}

// EMS: the past window and the current one, which takes its place when it is full.
TEST_F(QueryWindow, OfEmsCountsFromThePromptsEnd) {
  const std::vector<TokenId> text = random_tokens(200, 4);
  for (const auto& [draft_max, queries] : {std::pair(0, 32), {5, 32}, {0, 16}}) {
    Session ems = session("ems:budget=500,every=2,window=" + std::to_string(queries), 64, draft_max);
    ems.prefill(std::span(text).first(77));
    for (int decoded = 0; decoded < 100;) {
      if (draft_max == 0) {
        ems.decode(text[at(77 + decoded)]);
        ++decoded;
      } else {
        const std::vector<TokenId> drafts(text.begin() + 78 + decoded, text.begin() + 81 + decoded);
        ems.decode(text[at(77 + decoded)], drafts);
        ems.accept(2);
        decoded += 3;
      }
      for (int t = 0; t < ems.cache().tables(); ++t)
        ASSERT_NEAR(counted(ems, t), queries + decoded % queries, 1e-4) << decoded;
    }
  }
}

// A policy that goes on deciding after the prompt: at most 32 queries, and at least 29.
TEST_F(QueryWindow, InDecodeHoldsNoMoreThanItsLength) {
  const std::vector<TokenId> text = random_tokens(200, 4);
  Session snapkv = session("snapkv:budget=500,schedule=prompt+step", 64);
  snapkv.prefill(std::span(text).first(77));
  for (int i = 0; i < 100; ++i) {
    snapkv.decode(text[at(77 + i)]);
    EXPECT_LE(counted(snapkv, 0), 32 + 1e-4);
    EXPECT_GE(counted(snapkv, 0), 29 - 1e-4);
  }
  // A later prompt begins anew; so does one of fewer queries, with those before it.
  snapkv.prefill(std::span(text).first(50));
  EXPECT_NEAR(counted(snapkv, 0), 32, 1e-4);
  snapkv.prefill(std::span(text).first(3));
  EXPECT_GE(counted(snapkv, 0), 29 - 1e-4);
  // Decode does not collect weights for the preset, so a short prompt's window has only that prompt's queries.
  Session once = session("snapkv:budget=500", 64);
  once.prefill(std::span(text).first(77));
  once.decode(5);
  once.prefill(std::span(text).first(9));
  EXPECT_NEAR(counted(once, 0), 9, 1e-4);
}

}  // namespace
}  // namespace palimpsest::testing
