// Cancellation and deadlines reach into evictions: a request that is being evicted ends at once, and alone.
#include "palimpsest/core/interrupt.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/engine/scheduler_fixture.h"
#include "tests/support/error_of.h"

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

// How the request ended; `patience` 0: it is cancelled when its eviction has begun.
Finish interrupted(int threads, std::chrono::milliseconds patience) {
  using namespace std::chrono_literals;
  Scheduler scheduler(small_decoder(threads), nullptr, small_options());
  Request spins{.prompt = std::vector<TokenId>(100, 7), .method = spinning(), .max_tokens = 4};
  Request other{.prompt = std::vector<TokenId>(30, 5), .method = parse_method("h2o:budget=20"), .max_tokens = 30};
  other.sampler.temperature = 0;
  if (patience > 0ms) spins.deadline = Clock::now() + patience;
  const auto ended = std::make_shared<Answer>(), goes_on = std::make_shared<Answer>();
  evictions = 0;
  const std::uint64_t id = scheduler.submit(spins, ended);
  scheduler.submit(other, goes_on);
  std::jthread canceller([&, id](const std::stop_token& stop) {
    while (evictions == 0 && !stop.stop_requested()) std::this_thread::sleep_for(1ms);
    if (patience == 0ms) scheduler.cancel(id);
  });
  const auto start = Clock::now();
  run(scheduler);
  EXPECT_LT(Clock::now() - start, 55s);
  EXPECT_EQ(goes_on->how, Finish::kLength) << goes_on->usage.error;
  EXPECT_EQ(goes_on->tokens, alone(other));
  EXPECT_EQ(scheduler.load().used_bytes + scheduler.load().reserved_bytes, 0U);
  EXPECT_EQ(scheduler.load().finished[static_cast<int>(ended->how)], 1) << ended->usage.error;
  return ended->how;
}

TEST(Interrupt, AnEvictionEndsWithItsRequest) {
  for (const int threads : {1, 2}) {
    EXPECT_EQ(interrupted(threads, {}), Finish::kCancelled);
    for (int ms = 100; ms <= 12'800; ms *= 2) {  // until the eviction begins before the deadline
      EXPECT_EQ(interrupted(threads, std::chrono::milliseconds(ms)), Finish::kDeadline);
      if (evictions > 0) break;
    }
    EXPECT_GT(evictions, 0);
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

// Where others wait for an eviction, its comparisons are bounded; a session of its own may take its time.
TEST(Interrupt, LongComparisonsAreRefusedWhereOthersWait) {
  SchedulerOptions options = small_options();
  options.pool_bytes = std::size_t{1} << 32;
  Scheduler scheduler(small_decoder(), nullptr, options);
  const auto submit = [&](const char* method, std::size_t prompt) {
    const Request request{.prompt = std::vector<TokenId>(prompt, 7), .method = parse_method(method), .max_tokens = 1};
    scheduler.cancel(scheduler.submit(request, std::make_shared<Answer>()));
    run(scheduler);
  };
  const auto refusal = [&](const char* method, std::size_t prompt) {
    return error_of([&] { submit(method, prompt); });
  };
  EXPECT_EQ(refusal("r-kv:budget=64,schedule=prompt", 100'000),
            "policy r-kv compares up to 100000 tokens of each head with each other in one eviction, and all other "
            "requests would wait for it: choose a smaller budget, schedule=step or a shorter prompt");
  EXPECT_NO_THROW(submit("r-kv:budget=64", 100'000));
  EXPECT_NO_THROW(submit("r-kv:budget=64,schedule=prompt", 10'000));
  EXPECT_NE(refusal("ems:budget=40000,gamma=64", 100'000).find("mechanism merge compares"), std::string::npos);
  EXPECT_NO_THROW(submit("ems:budget=256,gamma=64", 100'000));
  SessionOptions session;
  session.method = parse_method("r-kv:budget=64,schedule=prompt");
  EXPECT_NO_THROW(MethodPlan(session.method, plan_target(*small_decoder(), session)).check_request(100'000, 100'001));
}

}  // namespace
}  // namespace palimpsest::testing
