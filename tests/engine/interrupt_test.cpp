// Cancellation and deadlines reach into evictions: a request that is being evicted ends at once, and alone.
#include "palimpsest/core/interrupt.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/engine/scheduler_fixture.h"

namespace palimpsest::testing {
namespace {

std::atomic<int> evictions = 0;

// Scores without end, until it is interrupted: at most a minute.
class Spins final : public Policy {
 public:
  Signals signals() const override { return {.keys = Keys{}}; }
  void score(const HeadView& head, std::span<float> score) const override {
    std::ranges::fill(score, 0.0F);
    ++evictions;
    const auto end = Clock::now() + std::chrono::minutes(1);
    while (head.interrupt != nullptr && Clock::now() < end) head.interrupt->check();
  }
};
PALIMPSEST_POLICY(spins, Spins, "scores without end")

Method spinning() {
  static const bool registered = (register_policy(policy_entry_spins("test-spins")), true);
  return parse_method(registered ? "full:policy=test-spins,budget=40,schedule=prompt" : "");
}

void run(Scheduler& scheduler) {
  while (scheduler.step()) {
  }
}

TEST(Interrupt, AnEvictionEndsWithItsRequest) {
  const Method method = spinning();
  for (const int threads : {1, 2})
    for (const bool late : {false, true}) {
      Scheduler scheduler(small_decoder(threads), nullptr, small_options());
      Request spins{.prompt = std::vector<TokenId>(100, 7), .method = method, .max_tokens = 4};
      Request other{.prompt = std::vector<TokenId>(30, 5), .method = parse_method("h2o:budget=20"), .max_tokens = 30};
      other.sampler.temperature = 0;
      if (late) spins.deadline = Clock::now() + std::chrono::milliseconds(300);
      const auto ended = std::make_shared<Answer>(), goes_on = std::make_shared<Answer>();
      evictions = 0;
      const std::uint64_t id = scheduler.submit(spins, ended);
      scheduler.submit(other, goes_on);
      std::jthread canceller([&] {
        while (evictions == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (!late) scheduler.cancel(id);
      });
      const auto start = Clock::now();
      run(scheduler);
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
      EXPECT_GT(evictions, 0);
      EXPECT_EQ(ended->how, late ? Finish::kDeadline : Finish::kCancelled) << ended->usage.error;
      EXPECT_EQ(goes_on->how, Finish::kLength) << goes_on->usage.error;
      EXPECT_EQ(goes_on->tokens, alone(other));
      EXPECT_EQ(scheduler.load().used_bytes + scheduler.load().reserved_bytes, 0U);
      EXPECT_EQ(scheduler.load().finished[static_cast<int>(ended->how)], 1);
    }
}

// Each method that compares tokens with each other checks at its own evictions.
TEST(Interrupt, MethodsThatCompareTokensCheckIt) {
  for (const char* method :
       {"r-kv:budget=40", "r-kv:budget=40,schedule=prompt", "ems:budget=40,recent=8,tau=0.1", "cam:budget=40",
        "keydiff:budget=40", "expected-attention:budget=40,every=8", "lagkv:budget=40"}) {
    SessionOptions options;
    options.method = parse_method(method);
    options.cache_type = CacheType::kF32;
    options.page_size = 16;
    options.chunk = kChunk;
    Session session(small_decoder(), options);
    const auto interrupt = std::make_shared<Interrupt>();
    session.sequence().set_interrupt(interrupt);
    session.prefill(std::vector<TokenId>(10, 7));
    interrupt->cancel();
    EXPECT_THROW(
        {
          session.prefill(std::vector<TokenId>(200, 7));
          for (int i = 0; i < 20; ++i) session.decode(3);
        },
        Interrupted)
        << method;
  }
}

}  // namespace
}  // namespace palimpsest::testing
