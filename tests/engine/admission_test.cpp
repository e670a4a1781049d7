// Admission counts every byte that a request may hold, before any of it is allocated.
#include <gtest/gtest.h>
#include <malloc.h>

#include "tests/engine/scheduler_fixture.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

// Query statistics of one sequence take 1 MiB.
std::shared_ptr<Decoder> wide_decoder() {
  static const std::shared_ptr<const Model> model = Model::from(make_synthetic({.vocabulary = kVocabulary,
                                                                                .width = 64,
                                                                                .layers = 8,
                                                                                .feed_forward = 32,
                                                                                .query_heads = 8,
                                                                                .kv_heads = 2,
                                                                                .head_dim = 64}));
  return std::make_shared<Decoder>(model, 1);
}
constexpr std::size_t kStatistics = std::size_t{8} * 8 * (1 + 64 + 64 * 64) * sizeof(float);

Request request_of(const char* method, std::size_t prompt = 20) {
  Request r;
  r.prompt = std::vector<TokenId>(prompt, 7);
  r.method = parse_method(method);
  r.max_tokens = 4;
  r.sampler.temperature = 0;
  return r;
}

SchedulerOptions with_pool(std::size_t pool_bytes) {
  SchedulerOptions options = small_options();
  options.pool_bytes = pool_bytes;
  return options;
}

TEST(Admission, CountsStatisticsOfQueries) {
  const auto listener = std::make_shared<Answer>();
  Scheduler small(wide_decoder(), nullptr, with_pool(kStatistics));
  EXPECT_NE(
      error_of([&] { small.submit(request_of("expected-attention:budget=64"), listener); }).find("needs up to 2 MiB"),
      std::string::npos);
  small.submit(request_of("h2o:budget=64"), listener);  // the same pages
  while (listener->ended == 0) small.step();
  EXPECT_EQ(listener->how, Finish::kLength);

  const auto heard = std::make_shared<Answer>();
  Scheduler larger(wide_decoder(), nullptr, with_pool(2 * kStatistics));
  larger.submit(request_of("expected-attention:budget=64"), heard);
  larger.step();
  EXPECT_GT(larger.load().reserved_bytes, kStatistics);
  while (heard->ended == 0) larger.step();
  EXPECT_EQ(larger.load().reserved_bytes, 0u);
}

TEST(Admission, BoundsMergedTokens) {
  Scheduler scheduler(small_decoder(), nullptr, small_options());
  const auto listener = std::make_shared<Answer>();
  EXPECT_NE(error_of([&] {
              scheduler.submit(request_of("ems:budget=64,recent=8,gamma=16000000"), listener);
            }).find("gamma 16000000 is out of range"),
            std::string::npos);
  scheduler.submit(request_of("ems:budget=33,recent=8,gamma=64,tau=0", 60), listener);
  while (listener->ended == 0) scheduler.step();
  EXPECT_EQ(listener->how, Finish::kLength);
}

// Many answers to one prompt (`n` of the server): waiting ones hold no memory.
TEST(Admission, NothingIsAllocatedForARequestThatWaits) {
#ifdef PALIMPSEST_SANITIZED
  GTEST_SKIP() << "mallinfo2 does not count the memory of a sanitizer's allocator";
#endif
  const auto in_use = [] {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  Scheduler scheduler(wide_decoder(), nullptr, with_pool(4 * kStatistics));
  std::vector<std::shared_ptr<Answer>> answers;
  const std::size_t before = in_use();
  for (int i = 0; i < 128; ++i) {
    answers.push_back(std::make_shared<Answer>());
    scheduler.submit(request_of("expected-attention:budget=64"), answers.back());
  }
  EXPECT_LT(in_use() - before, 4 * kStatistics) << "128 requests would have " << 128 * kStatistics;
  scheduler.step();
  EXPECT_EQ(scheduler.load().running, 3);  // as many as fit
  EXPECT_EQ(scheduler.load().waiting, 125);
  EXPECT_LE(scheduler.load().reserved_bytes, 4 * kStatistics);
  while (scheduler.step()) {
  }
  for (const auto& answer : answers) EXPECT_EQ(answer->how, Finish::kLength);
  EXPECT_EQ(scheduler.load().running_peak, 3);
}

// A request that is cancelled in the queue has no sequence yet.
TEST(Admission, AWaitingRequestCanBeCancelled) {
  SchedulerOptions options = small_options();
  options.max_sequences = 1;
  Scheduler scheduler(small_decoder(), nullptr, options);
  const auto first = std::make_shared<Answer>(), second = std::make_shared<Answer>();
  scheduler.submit(request_of("h2o:budget=40"), first);
  scheduler.step();
  scheduler.cancel(scheduler.submit(request_of("h2o:budget=40"), second));
  while (scheduler.step()) {
  }
  EXPECT_EQ(first->how, Finish::kLength);
  EXPECT_EQ(second->how, Finish::kCancelled);
  EXPECT_EQ(second->usage.cache_bytes_peak, 0u);
}

}  // namespace
}  // namespace palimpsest::testing
