// Admission counts the bytes of requests that load a snapshot, and of ended requests that are being saved.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/engine/scheduler_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<const Snapshot> stored(const std::vector<std::byte>& packed, const Model& model) {
  const std::string path = own_file("released.snap");
  write_snapshot(path, [&](ByteWriter& out) { out.bytes(packed); });
  auto snapshot = std::make_shared<const Snapshot>(path, model);
  std::filesystem::remove(path);
  return snapshot;
}

Request to_keep(std::size_t prompt, const char* method = "full") {
  Request request{.prompt = std::vector<TokenId>(prompt, 3), .method = parse_method(method), .max_tokens = 4};
  request.sampler.temperature = 0;
  request.keep = true;
  return request;
}

std::size_t bytes_of(const Request& request) {
  Scheduler scheduler(small_decoder(), nullptr, small_options());
  scheduler.submit(request, std::make_shared<Answer>());
  scheduler.step();
  return scheduler.load().reserved_bytes;
}

// Steps until `done`; loads and saves run on other threads.
template <typename Done>
void step_until(Scheduler& scheduler, Done done) {
  for (int i = 0; i < 20'000 && !done(); ++i)
    if (!scheduler.step()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  ASSERT_TRUE(done());
}

// Query statistics are most of the bytes: without their bytes the pool's limit of pages would underflow.
TEST(Lent, RestoresAreAdmittedOnlyAsTheyFit) {
  for (const char* method : {"full", "expected-attention:budget=24,every=8"}) {
    Request request = to_keep(100, method);
    const auto first = std::make_shared<Answer>();
    Scheduler saving(small_decoder(), nullptr, small_options());
    saving.submit(request, first);
    while (saving.step()) {
    }
    request.keep = false;
    request.prompt = {};
    request.resume = stored(first->snapshot, small_decoder()->model());
    SchedulerOptions options = small_options();
    options.pool_bytes = bytes_of(request) * 5 / 2;
    options.prefix_bytes = options.pool_bytes;
    Scheduler scheduler(small_decoder(), nullptr, options);
    std::vector<std::shared_ptr<Answer>> answers;
    for (int i = 0; i < 8; ++i) scheduler.submit(request, answers.emplace_back(std::make_shared<Answer>()));
    step_until(scheduler, [&] {
      const SchedulerLoad load = scheduler.load();
      EXPECT_LE(load.running, 2) << method;
      EXPECT_LE(load.reserved_bytes, options.pool_bytes) << method;
      EXPECT_LE(load.used_bytes + load.prefix_bytes, options.pool_bytes) << method;
      return std::ranges::all_of(answers, [](const auto& answer) { return answer->ended == 1; });
    });
    for (const auto& answer : answers) EXPECT_EQ(answer->how, Finish::kLength) << method << ": " << answer->usage.error;
    scheduler.step();
    EXPECT_EQ(scheduler.load().reserved_bytes, 0U);
  }
}

TEST(Lent, ARequestWaitsForTheBytesOfOneThatIsBeingSaved) {
  const Request request = to_keep(100);
  SchedulerOptions options = small_options();
  options.pool_bytes = bytes_of(request) * 3 / 2;
  Scheduler scheduler(small_decoder(), nullptr, options);
  const auto saved = std::make_shared<Answer>(), waiting = std::make_shared<Answer>(),
             small = std::make_shared<Answer>();
  saved->hold = true;
  scheduler.submit(request, saved);
  while (scheduler.step()) {
  }
  ASSERT_NE(saved->held, nullptr);
  scheduler.submit(request, waiting);
  scheduler.submit(to_keep(20), small);  // overtakes: it fits
  for (int i = 0; i < 50; ++i) scheduler.step();
  EXPECT_EQ(scheduler.load().waiting, 1);
  EXPECT_LE(scheduler.load().reserved_bytes, options.pool_bytes);
  EXPECT_EQ(small->how, Finish::kLength);
  EXPECT_EQ(waiting->ended, 0);
  saved->held.reset();
  step_until(scheduler, [&] { return waiting->ended == 1; });
  EXPECT_EQ(waiting->how, Finish::kLength) << waiting->usage.error;
}

// A request that overtook another one counts as an overtaker while it is being saved, too.
TEST(Lent, SavingOvertakersStarveNobody) {
  const Request large = to_keep(100), medium = to_keep(50), small = to_keep(20);
  SchedulerOptions options = small_options();
  options.pool_bytes = bytes_of(large);
  ASSERT_LE(bytes_of(medium) + bytes_of(small), options.pool_bytes);
  Scheduler scheduler(small_decoder(), nullptr, options);
  const auto submit = [&](const Request& request) {
    const auto answer = std::make_shared<Answer>();
    answer->hold = true;
    scheduler.submit(request, answer);
    for (int i = 0; i < 20; ++i) scheduler.step();
    return answer;
  };
  const auto first = submit(medium), waiting = submit(large), overtaker = submit(small);
  ASSERT_NE(first->held, nullptr);
  ASSERT_NE(overtaker->held, nullptr);
  first->held.reset();
  const auto other = submit(small);
  EXPECT_EQ(other->ended, 0) << "it overtook a request that waits for an overtaker alone";
  EXPECT_EQ(waiting->ended, 0) << "there is no memory for it";
  overtaker->held.reset();
  step_until(scheduler, [&] { return waiting->ended == 1; });
  waiting->held.reset();
  step_until(scheduler, [&] { return other->ended == 1; });
}

}  // namespace
}  // namespace palimpsest::testing
