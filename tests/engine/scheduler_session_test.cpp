// Requests that are kept and gone on from: as if they had never been interrupted.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <vector>

#include "palimpsest/engine/snapshot.h"
#include "tests/engine/scheduler_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<const Snapshot> on_disk(const std::vector<std::byte>& packed) {
  const std::string path = own_file("scheduler.snap");
  write_snapshot(path, packed);
  auto snapshot = std::make_shared<const Snapshot>(path, small_decoder()->model());
  std::filesystem::remove(path);
  return snapshot;
}

// What was kept in the middle and gone on from is what was never interrupted, whoever else is there.
// Beginnings of prompts are kept meanwhile, one of them the very tokens that are read after a restored cache: those are
// no beginning.
TEST(Scheduler, GoesOnFromWhatWasKept) {
  SchedulerOptions scheduler_options = small_options();
  scheduler_options.prefix_bytes = scheduler_options.pool_bytes / 2;
  Scheduler scheduler(small_decoder(), nullptr, scheduler_options);
  std::mt19937 random(5);
  const auto answer = [&](const Request& request) {
    const auto heard = std::make_shared<Answer>();
    const auto other = std::make_shared<Answer>();
    scheduler.submit(random_request(random), other);
    scheduler.submit(request, heard);
    while (scheduler.step()) {
    }
    const SchedulerLoad load = scheduler.load();
    EXPECT_EQ(load.used_bytes + load.promised_bytes, 0u);
    return heard;
  };
  for (const std::string method :
       {"full", "streaming:budget=40", "streaming:budget=48,every=8", "h2o:budget=40", "h2o:budget=33,positions=cache",
        "streaming:budget=40,mechanism=shift", "lazy:budget=40,every=6", "knorm:budget=40,mechanism=append",
        "paged-eviction:budget=64", "keydiff:budget=40", "streaming:budget=40,schedule=prompt"}) {
    SCOPED_TRACE(method);
    Request whole = random_request(random);
    whole.prompt.resize(70, 3);
    whole.method = parse_method(method);
    whole.sampler = {.temperature = 1, .repeat_penalty = 1.1F, .seed = 9, .grammar = {}};
    whole.max_tokens = 90;
    const auto uninterrupted = answer(whole);

    Request part = whole;
    part.max_tokens = 40;
    part.keep = true;
    const auto first = answer(part);
    part.max_tokens = 1;
    part.prompt.clear();
    part.sampler.seed = 0;  // the snapshot's is taken
    part.resume = on_disk(first->snapshot);
    const auto second = answer(part);
    part.max_tokens = 49;
    part.resume = on_disk(second->snapshot);
    const auto third = answer(part);
    EXPECT_EQ(third->usage.prompt_tokens, 0);
    std::vector<TokenId> together = first->tokens;
    together.insert(together.end(), second->tokens.begin(), second->tokens.end());
    together.insert(together.end(), third->tokens.begin(), third->tokens.end());
    EXPECT_EQ(together, uninterrupted->tokens);
    EXPECT_EQ(first->usage.evicted + second->usage.evicted + third->usage.evicted, uninterrupted->usage.evicted);

    // With a prompt: what a session that reads it next writes, by a sampler of its own.
    SessionOptions options;
    options.method = whole.method;
    options.cache_type = CacheType::kF32;
    options.page_size = 16;
    options.chunk = kChunk;
    Session session(small_decoder(), options);
    const auto snapshot = on_disk(first->snapshot);
    snapshot->load(session.sequence());
    std::vector<TokenId> more(31, 8);
    Request next = whole;
    next.prompt = more;
    next.max_tokens = 20;
    next.resume = snapshot;
    more.insert(more.begin(), first->tokens.back());
    Sampler sampler(next.sampler, nullptr, kVocabulary);
    for (const TokenId t : next.prompt) sampler.accept(t);
    std::vector<TokenId> expected = {sampler.sample(session.prefill(more))};
    while (expected.size() < 20) expected.push_back(sampler.sample(session.decode(expected.back())));
    Request alike = next;
    alike.prompt = more;
    alike.resume = nullptr;
    answer(alike);
    EXPECT_EQ(answer(alike)->usage.cached, kChunk);
    const auto heard = answer(next);
    EXPECT_EQ(heard->tokens, expected);
    EXPECT_EQ(heard->usage.cached, 0);
  }
}

// The promise holds for what goes on, too: at every step no more pages are in use than were promised.
TEST(Scheduler, GoingOnKeepsThePromise) {
  std::mt19937 random(6);
  for (const char* method : kMethods)
    for (int i = 0; i < 6; ++i) {
      SchedulerOptions options = small_options();
      options.max_sequences = 2;
      Scheduler scheduler(small_decoder(), nullptr, options);
      Request request = random_request(random);
      request.method = parse_method(method);
      request.keep = true;
      std::shared_ptr<Answer> heard;
      for (int turn = 0; turn < 5; ++turn) {
        heard = std::make_shared<Answer>();
        scheduler.submit(request, heard);
        while (scheduler.step()) {
          const SchedulerLoad load = scheduler.load();
          ASSERT_LE(load.used_bytes, load.promised_bytes) << method;
        }
        ASSERT_EQ(heard->how, Finish::kLength);
        request = random_request(random);
        request.method = parse_method(method);
        request.keep = true;
        if (random() % 3 == 0) request.prompt.clear();
        request.resume = on_disk(heard->snapshot);
      }
    }
}

TEST(Scheduler, RefusesToGoOnFromAnother) {
  Scheduler scheduler(small_decoder(), nullptr, small_options());
  Request request{.prompt = {1, 2, 3}, .method = parse_method("h2o:budget=40"), .max_tokens = 5, .keep = true};
  const auto heard = std::make_shared<Answer>();
  scheduler.submit(request, heard);
  while (scheduler.step()) {
  }
  request.resume = on_disk(heard->snapshot);
  const auto says = [&](const Request& r) {
    return error_of([&] { scheduler.submit(r, std::make_shared<Answer>()); });
  };
  Request other = request;
  other.method = parse_method("h2o:budget=41");
  EXPECT_NE(says(other).find("was made with --method h2o"), std::string::npos);
  other = request;
  other.max_tokens = 1LL << 40;
  other.method = parse_method("full");
  EXPECT_NE(says(other).find("MiB of cache"), std::string::npos);

  SchedulerOptions options = small_options();
  options.page_size = 32;
  Scheduler larger(small_decoder(), nullptr, options);
  EXPECT_NE(error_of([&] { larger.submit(request, heard); }).find("page size"), std::string::npos);

  const auto cancelled = std::make_shared<Answer>();  // is not kept
  request.resume = nullptr;
  request.max_tokens = 1000;
  const std::uint64_t id = scheduler.submit(request, cancelled);
  for (int i = 0; i < 5; ++i) scheduler.step();
  scheduler.cancel(id);
  scheduler.step();
  EXPECT_EQ(cancelled->how, Finish::kCancelled);
  EXPECT_TRUE(cancelled->snapshot.empty());
}

}  // namespace
}  // namespace palimpsest::testing
