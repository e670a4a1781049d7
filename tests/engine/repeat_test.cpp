// KVzip in the engine: the prompt is repeated, tokens with high weights are kept, the repetition's tokens are removed.
#include "palimpsest/engine/sequence/repeat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "palimpsest/engine/scheduler/scheduler.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_of.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<Decoder> decoder_with_group(int group) {
  return std::make_shared<Decoder>(Model::from(make_synthetic({.vocabulary = 96,
                                                               .width = 64,
                                                               .layers = 2,
                                                               .feed_forward = 96,
                                                               .query_heads = 2 * group,
                                                               .kv_heads = 2,
                                                               .head_dim = 16})),
                                   1);
}

// Each token's maximum weight over query groups and queries, of a model that reads the repetition token by token:
// another kernel and another cache.
class Greatest final : public AttentionReceiver {
 public:
  Greatest(Decoder& decoder) : decoder_(decoder), cache_(shape(decoder)) {}

  void read(std::span<const TokenId> tokens, bool count) {
    for (const TokenId& token : tokens) {
      cache_.insert(1);
      const std::size_t slots = cache_.table(0).score().size();
      for (auto& row : weights_) row.resize(slots);
      float* rows[] = {weights_[0].data(), weights_[1].data(), weights_[0].data(), weights_[1].data()};
      SequenceStep step{.cache = &cache_, .tokens = {&token, 1}};
      if (count) {
        step.weights = rows;
        step.request.weight_reduction = WeightReduction::kMaxOverGroup;
        step.receiver = this;
      }
      decoder_.step({&step, 1});
    }
  }
  void forget(int tokens) {
    for (; tokens > 0; --tokens) {  // removes the newest, one by one
      Victims plan;
      const auto position = cache_.table(0).position();
      plan.drop = {{static_cast<int>(std::ranges::max_element(position) - position.begin())}};
      cache_.apply(plan);
    }
  }
  void receive(const StepSignal& signal) override {
    const int head = signal.head;
    const int kv_head = cache_.geometry().kv_head_of(head);
    auto& max = greatest[head];
    max.resize(1000, 0);
    const auto position = cache_.table(0).position();
    for (std::size_t s = 0; s < position.size(); ++s)
      if (position[s] >= 0)
        max[static_cast<std::size_t>(position[s])] =
            std::max(max[static_cast<std::size_t>(position[s])], weights_[static_cast<std::size_t>(kv_head)][s]);
  }
  std::vector<float> greatest[4];

 private:
  static CacheOptions shape(const Decoder& decoder) {
    CacheOptions options = decoder.cache_options();
    options.geometry = options.geometry.with_types(CacheType::kF32, CacheType::kF32);
    return options;
  }
  Decoder& decoder_;
  Cache cache_;
  std::vector<float> weights_[2];
};

TEST(Repeat, KeepsWhatTheModelLooksAtWhileItRepeats) {
  for (const int group : {1, 4, 8}) {
    const auto decoder = decoder_with_group(group);
    for (const char* schedule : {"prompt", "prompt+step"}) {
      SessionOptions options = session_options(std::string("kvzip:budget=40,sinks=2,schedule=") + schedule);
      options.repeat = {3, 1, 4};
      Session session(decoder, options);
      const auto prompt = random_tokens(50, 3);  // one part of 3 + 50
      const auto logits = session.prefill(prompt);

      Session whole(decoder, session_options("full", 64));
      const auto expected = whole.prefill(prompt);
      for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_EQ(logits[i], expected[i]);

      Greatest oracle(*decoder);
      oracle.read(prompt, false);
      oracle.read(options.repeat, true);
      oracle.read(prompt, true);
      for (int t = 0; t < 4; ++t) {
        std::vector<Position> order(48);
        std::iota(order.begin(), order.end(), Position{2});
        std::ranges::sort(order, std::greater(),
                          [&](Position p) { return oracle.greatest[t][static_cast<std::size_t>(p)]; });
        order.resize(38);
        order.insert(order.end(), {0, 1});
        std::ranges::sort(order);
        std::vector<Position> kept(session.cache().table(t).position().begin(),
                                   session.cache().table(t).position().end());
        std::erase(kept, kNoPosition);
        std::ranges::sort(kept);
        EXPECT_EQ(kept, order) << group << " table " << t;
        for (std::size_t s = 0; s < session.cache().table(t).position().size(); ++s)
          if (const Position p = session.cache().table(t).position()[s]; p >= 0) {
            EXPECT_NEAR(session.cache().table(t).score()[s], oracle.greatest[t][static_cast<std::size_t>(p)], 1e-5);
          }
      }
      EXPECT_EQ(session.position(), 50);
      session.decode(5);
      EXPECT_EQ(session.cache().occupied(), std::string(schedule) == "prompt" ? 41 : 40);
    }
  }
}

// Parts of one chunk, each with the sentence before it; pages are returned; a second text is repeated separately.
TEST(Repeat, InParts) {
  const auto decoder = decoder_with_group(2);
  SessionOptions options = session_options("kvzip:budget=48", 32);
  options.repeat = {3, 1, 4, 1};
  Session session(decoder, options);
  const auto prompt = random_tokens(200, 4);
  session.prefill(prompt);
  EXPECT_EQ(session.cache().occupied(), 48);
  EXPECT_EQ(session.cache().bytes_in_use(), 4U * 48 * 2 * 16 * sizeof(float));
  EXPECT_EQ(session.position(), 200);

  Greatest oracle(*decoder);
  oracle.read(prompt, false);
  for (int t = 0; t < 4; ++t) EXPECT_TRUE(oracle.greatest[t].empty());
  session.prefill(random_tokens(30, 5));
  EXPECT_EQ(session.cache().occupied(), 48);
  EXPECT_EQ(session.position(), 230);
}

struct Listener final : RequestListener {
  bool written(const SampledToken& token) override {
    tokens.push_back(token.token);
    return true;
  }
  void finished(Finish finish, const Usage& used) override {
    end = finish;
    usage = used;
  }
  std::vector<TokenId> tokens;
  std::optional<Finish> end;
  Usage usage;
};

// Together with other requests, and with a prefix from the prefix cache.
TEST(Repeat, TheSchedulerWritesWhatASessionWrites) {
  const auto decoder = decoder_with_group(2);
  const auto prompt = random_tokens(150, 6);
  std::vector<TokenId> expected;
  Session session(decoder, session_options("kvzip:budget=48", 32));
  auto logits = session.prefill(prompt);
  for (int i = 0; i < 12; ++i) {
    expected.push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
    logits = session.decode(expected.back());
  }
  SchedulerOptions options;
  options.cache_type = CacheType::kF32;
  options.page_size = 16;
  options.chunk = 32;
  options.prefix_bytes = 1 << 20;
  Scheduler scheduler(decoder, nullptr, options);
  std::vector<std::shared_ptr<Listener>> listeners;
  for (const char* method :
       {"kvzip:budget=48", "full", "kvzip:budget=48", "h2o:budget=40", "kvzip:budget=48,schedule=prompt+step"}) {
    Request request{.prompt = prompt, .method = parse_method(method)};
    request.sampler.temperature = 0;
    request.max_tokens = 12;
    listeners.push_back(std::make_shared<Listener>());
    scheduler.submit(std::move(request), listeners.back());
  }
  while (scheduler.step()) continue;
  for (const std::size_t i : {0U, 2U}) {
    ASSERT_EQ(listeners[i]->end, Finish::kLength);
    EXPECT_EQ(listeners[i]->tokens, expected);
    EXPECT_EQ(listeners[i]->usage.prompt_tokens, 150);
  }
  for (const auto& listener : listeners) EXPECT_EQ(listener->tokens.size(), 12U);
}

TEST(Repeat, OtherSchedulesAreRefused) {
  const auto decoder = decoder_with_group(1);
  EXPECT_NE(error_of([&] {
              Session(decoder, session_options("kvzip:schedule=step", 64));
            }).find("scores a prompt by its repetition, after it was read: use schedule=prompt or prompt+step"),
            std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
