// A steady decode step allocates nothing in sequence, cache, policy, graph execution, scheduler and sampler. Counts
// operator new of the whole program, ggml's C++ code included; its C code calls malloc.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "palimpsest/core/thread_pool.h"
#include "tests/engine/allocations.h"
#include "tests/engine/scheduler_fixture.h"

namespace palimpsest::testing {
namespace {

const char* const kSteady[] = {"streaming:budget=64",
                               "streaming:budget=64,mechanism=shift",
                               "streaming:budget=64,every=8",
                               "h2o:budget=64",
                               "h2o:budget=64,positions=cache",
                               "tova:budget=64",
                               "snapkv:budget=64,schedule=step",
                               "keydiff:budget=64",
                               "knorm:budget=64",
                               "lagkv:budget=96",
                               "paged-eviction:budget=64",
                               "ems:budget=64,recent=8,schedule=step,tau=0",
                               "ems:budget=64,recent=8,schedule=step,tau=0.05,merge-position=own"};

std::shared_ptr<Decoder> decoder_of_threads(int threads) {
  return std::make_shared<Decoder>(Model::from(make_synthetic({.vocabulary = kVocabulary,
                                                               .width = 64,
                                                               .layers = 2,
                                                               .feed_forward = 96,
                                                               .query_heads = 4,
                                                               .kv_heads = 2,
                                                               .head_dim = 16})),
                                   threads);
}

// Of several times `steps`: a thread allocates its memory in the first loop that it takes part in, which may be a late
// one on a busy machine.
template <typename Steps>
long long fewest_allocations(const Steps& steps) {
  long long fewest = std::numeric_limits<long long>::max();
  for (int time = 0; time < 5 && fewest > 0; ++time) {
    const long long before = allocations();
    steps();
    fewest = std::min(fewest, allocations() - before);
  }
  return fewest;
}

TEST(DecodeAllocation, NoneInASession) {
  for (const int threads : {1, 2})
    for (const char* method : kSteady) {
      SessionOptions options;
      options.method = parse_method(method);
      options.cache_type = CacheType::kF32;
      options.page_size = 16;
      Session session(decoder_of_threads(threads), options);
      session.prefill(std::vector<TokenId>(100, 3));
      for (int i = 0; i < 300; ++i) session.decode(static_cast<TokenId>(i % kVocabulary));
      EXPECT_EQ(fewest_allocations([&] {
                  for (int i = 0; i < 100; ++i) session.decode(static_cast<TokenId>(i % kVocabulary));
                }),
                0)
          << method << ", " << threads << " threads";
    }
}

TEST(DecodeAllocation, NoneInASchedulerOfEight) {
  struct Listener final : RequestListener {
    bool written(const SampledToken&) override { return ++tokens > 0; }
    void finished(Finish how, const Usage& usage) override {
      if (how != Finish::kCancelled) ADD_FAILURE() << usage.error;
    }
    long long tokens = 0;
  };
  // Without the last method: its table of rotations by distance grows with distances that the generated text decides.
  constexpr std::size_t kCount = std::size(kSteady) - 1;
  for (const int threads : {1, 2}) {
    SchedulerOptions options = small_options();
    options.pool_bytes = std::size_t{64} << 20;
    Scheduler scheduler(decoder_of_threads(threads), nullptr, options);
    std::vector<std::shared_ptr<Listener>> heard;
    for (int i = 0; i < 8; ++i) {
      Request request{.prompt = std::vector<TokenId>(20, 3),
                      .method = parse_method(kSteady[static_cast<std::size_t>(i * 2) % kCount]),
                      .max_tokens = 100'000};
      request.sampler.temperature = i % 2 == 0 ? 0.0F : 1.0F;
      heard.push_back(std::make_shared<Listener>());
      scheduler.submit(request, heard.back());
    }
    for (int i = 0; i < 800; ++i) scheduler.step();
    EXPECT_EQ(fewest_allocations([&] {
                const long long written = heard.front()->tokens;
                for (int i = 0; i < 100; ++i) scheduler.step();
                EXPECT_EQ(heard.front()->tokens, written + 100);
              }),
              0)
        << threads << " threads";
    EXPECT_EQ(scheduler.load().running, 8);
  }
}

TEST(DecodeAllocation, NoneInALoopOfWorkers) {
  ThreadPool workers(3);
  std::atomic<long long> sum = 0;
  const long long one = 1, two = 2, three = 3;
  const long long before = allocations();
  for (int i = 0; i < 100; ++i) workers.run(50, [&sum, one, two, three](int n) { sum += one + two + three + n; });
  EXPECT_EQ(allocations() - before, 0);
  EXPECT_EQ(sum, 100 * 50 * 6 + 100 * 1225);
}

}  // namespace
}  // namespace palimpsest::testing
