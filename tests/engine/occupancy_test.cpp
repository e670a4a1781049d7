// No head ever holds more tokens than the plan's bound (MethodPlan::occupancies), whatever the method and its options:
// while prompts are read, in decode, and with drafts, which have room for at least one token.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/step_loop.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/random_tokens.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

constexpr int kWords = 64;

std::shared_ptr<Decoder> occupancy_decoder(const std::string& shape) {
  SyntheticShape synthetic = shape.empty() ? SyntheticShape{.width = 32,
                                                            .layers = 2,
                                                            .feed_forward = 32,
                                                            .query_heads = 4,
                                                            .kv_heads = 2,
                                                            .head_dim = 8,
                                                            .seed = 1}
                                           : parse_synthetic(shape);
  synthetic.vocabulary = kWords;
  return std::make_shared<Decoder>(Model::from(make_synthetic(synthetic)), 1);
}

// Compares every step with the plan's bounds.
class Watch {
 public:
  Watch(const std::shared_ptr<Decoder>& decoder, const SessionOptions& options, long long prompt, long long tokens)
      : loop_(decoder), sequence_(*decoder, options, nullptr) {
    const MethodPlan& plan = sequence_.plan();
    bounds_ = plan.occupancies(prompt, plan.method().bounded() ? -1 : tokens);
  }

  void prompt(std::span<const TokenId> tokens) {
    sequence_.read(tokens);
    while (sequence_.stage() != Sequence::Stage::kIdle) step(bounds_.prefill);
    for (std::size_t i = 0; i < bounds_.prefill.size(); ++i)
      bounds_.prefill[i].tokens = bounds_.decode[i].tokens - 1 + sequence_.options().chunk;
  }
  void decode(TokenId token, std::span<const TokenId> drafts, unsigned accepted) {
    sequence_.read(token, drafts);
    const std::size_t read = step(bounds_.decode);
    rows_ = std::max(rows_, read);
    sequence_.accept(static_cast<int>(accepted % read));
    check(bounds_.decode);
  }
  long long evicted() const { return sequence_.cache().evicted(); }
  std::size_t rows() const { return rows_; }

 private:
  std::size_t step(const std::vector<Occupancy>& bounds) {
    StepShare share{.sequence = &sequence_}, *const one = &share;
    if (!StepLoop::begin(share)) std::rethrow_exception(share.failure);
    const std::size_t tokens = share.step.tokens.size();
    EXPECT_GE(tokens, 1u);
    check(bounds);
    loop_.run({&one, 1}, [](std::span<StepShare* const> after) {
      if (after.front()->failure) std::rethrow_exception(after.front()->failure);
    });
    return tokens;
  }
  void check(const std::vector<Occupancy>& bounds) const {
    const Cache& cache = sequence_.cache();
    const bool together = sequence_.plan().method().budgets_change();  // a layer's heads share its budget
    long long all = 0, most = 0;
    for (int t = 0; t < cache.tables(); ++t) {
      const Occupancy& bound = bounds[bounds.size() == 1 ? 0 : at(t)];
      const long long max = std::max(bound.tokens, together ? bound.slots : 0);
      all += cache.table(t).occupied(), most += max;
      ASSERT_TRUE(together || cache.table(t).occupied() <= max)
          << "table " << t << " holds " << cache.table(t).occupied() << " tokens, bound " << max;
    }
    ASSERT_LE(all, most);
  }

  StepLoop loop_;
  Sequence sequence_;
  Occupancies bounds_;
  std::size_t rows_ = 0;
};

TEST(Occupancy, NeverExceedsThePlan) {
  std::mt19937 random(5);
  const auto one_of = [&]<typename T>(std::initializer_list<T> list) { return list.begin()[random() % list.size()]; };
  const auto plain = occupancy_decoder(""), windows = occupancy_decoder("tiny-gemma2");
  const std::vector<TokenId> text = random_tokens(1000, 3, kWords);
  std::set<std::string> evicting, drafting;
  int runs = 0;
  const int draws = test_length(450, 900, 90);
  for (int i = 0; i < draws; ++i) {
    const MethodRow& row = methods()[static_cast<std::size_t>(i) % methods().size()];
    std::string method(row.name);
    const auto add = [&](const std::string& key, std::initializer_list<const char*> values) {
      const std::string value = one_of(values);
      if (!value.empty()) method += (method.find(':') == std::string::npos ? ":" : ",") + key + "=" + value;
    };
    if (row.preset.policy != "none") {
      add("budget", {"40", "48", "64"});
      add("every", {"", "1", "3", "8", "16", "50", "0"});
      add("slack", {"", "", "1", "5"});
      add("max-drop", {"", "", "1", "2", "6", "32"});
      add("overlap", {"", "", "3"});
      add("refresh", {"", "", "2"});
      add("evict", {"", "after"});
      add("mechanism", {"", "", "in-place", "append", "shift", "gather", "merge", "match", "block"});
      add("positions", {"", "", "cache", "original"});
      add("schedule", {"", "", "step", "prompt", "prompt+step", "page"});
      if (method.find("=prompt+step") != std::string::npos) add("prompt-max", {"", "64", "70"});
      add("split", {"", "", "", "pyramid", "ada"});
      if (method.find("block") != std::string::npos || method.find("=page") != std::string::npos)
        add("page", {"", "8", "16"});
      add("pin", {"", "", "0-9", "20-25", "2-4+30-33"});
    }
    SCOPED_TRACE(method);
    const auto decoder = random() % 4 == 0 ? windows : plain;
    SessionOptions options = session_options(method, one_of({1, 7, 20, 64}));
    options.draft_max = one_of({0, 0, 3, 6});
    const std::size_t prompt = at(one_of({1, 30, 90, 150})), decoded = 70;
    const Method& m = options.method;
    // A second prompt is read where evictions happen inside prompts: it adds at most a chunk to a full cache.
    const bool twice = m.schedule == Schedule::kStep || m.schedule == Schedule::kPage;
    try {
      validate(m);
      Watch watch(decoder, options, static_cast<long long>(prompt), 2000);
      watch.prompt(std::span(text).first(prompt));
      for (std::size_t k = 0; k < 2 * decoded && !::testing::Test::HasFailure(); ++k) {
        if (k == decoded && twice) watch.prompt(std::span(text).subspan(500, 100));
        watch.decode(text[prompt + k], std::span(text).subspan(700, random() % 7), static_cast<unsigned>(random()));
      }
      if (watch.evicted() > 0) evicting.insert(m.name);
      if (watch.rows() > 1) drafting.insert(m.name);
      ++runs;
    } catch (const Error&) {
      continue;  // illegal
    }
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  EXPECT_GT(runs, draws / 8);
  if (draws < 450) return;
  EXPECT_GT(evicting.size(), 18u);
  EXPECT_GT(drafting.size(), 8u);
}

// 5,257 tokens before: an eviction of at most 32 after a chunk of 512.
TEST(Occupancy, OfAPromptWithMaxDrop) {
  const auto decoder = occupancy_decoder("");
  const SessionOptions options = session_options("h2o:budget=256,every=64,max-drop=32");
  Watch watch(decoder, options, 3000, 3100);
  const auto text = random_tokens(3000, 1, kWords);
  watch.prompt(text);
  for (int i = 0; i < 100; ++i) watch.decode(text[at(i)], {}, 0);
  EXPECT_GT(watch.evicted(), 0);
}

}  // namespace
}  // namespace palimpsest::testing
