// Saved and resumed requests give the same as uninterrupted ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include "palimpsest/engine/sequence/released_sequence.h"
#include "tests/engine/scheduler_fixture.h"
#include "tests/support/draws.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<const Snapshot> on_disk(const std::vector<std::byte>& packed) {
  const std::string path = own_file("scheduler.snap");
  write_snapshot(path, [&](ByteWriter& out) { out.bytes(packed); });
  auto snapshot = std::make_shared<const Snapshot>(path, small_decoder()->model());
  std::filesystem::remove(path);
  return snapshot;
}

// A request saved in the middle and resumed gives the same as an uninterrupted one, whatever other requests there are.
// The prefix cache is active; it holds a prefix equal to the tokens that are read after a restored cache, which must
// not be used for them.
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
    EXPECT_EQ(load.used_bytes + load.reserved_bytes, 0u);
    return heard;
  };
  const std::vector<std::string> methods = {"full",
                                            "streaming:budget=40",
                                            "streaming:budget=48,every=8",
                                            "h2o:budget=40",
                                            "h2o:budget=33,positions=cache",
                                            "streaming:budget=40,mechanism=shift",
                                            "lazy:budget=40,every=6",
                                            "knorm:budget=40,mechanism=append",
                                            "paged-eviction:budget=64",
                                            "keydiff:budget=40",
                                            "streaming:budget=40,schedule=prompt"};
  for (const std::string& method : some_if_sanitized(methods, 3)) {
    SCOPED_TRACE(method);
    Request whole = random_request(random);
    std::vector<TokenId> prompt(whole.prompt.begin(), whole.prompt.end());
    prompt.resize(70, 3);
    whole.prompt = prompt;
    whole.method = parse_method(method);
    whole.sampler = {.temperature = 1, .repeat_penalty = 1.1F, .seed = 9, .grammar = {}};
    whole.max_tokens = 90;
    const auto uninterrupted = answer(whole);

    Request part = whole;
    part.max_tokens = 40;
    part.keep = true;
    const auto first = answer(part);
    part.max_tokens = 1;
    part.prompt = {};
    part.sampler.seed = 0;  // the snapshot's seed is used
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

    // With a prompt: the same as a session that reads it next, with its own sampler.
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

// Reservations hold for resumed requests, too: no step uses more pages than reserved.
TEST(Scheduler, GoingOnKeepsThePromise) {
  std::mt19937 random(6);
  for (const char* method : kMethods)
    for (int i = 0; i < test_length(6, 6, 1); ++i) {
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
          ASSERT_LE(load.used_bytes, load.reserved_bytes) << method;
        }
        ASSERT_EQ(heard->how, Finish::kLength);
        request = random_request(random);
        request.method = parse_method(method);
        request.keep = true;
        if (random() % 3 == 0) request.prompt = {};
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
  EXPECT_NE(says(other).find("was saved with --method h2o"), std::string::npos);
  other = request;
  other.max_tokens = 1LL << 40;
  other.method = parse_method("full");
  EXPECT_NE(says(other).find("MiB of cache"), std::string::npos);

  SchedulerOptions options = small_options();
  options.page_size = 32;
  Scheduler larger(small_decoder(), nullptr, options);
  EXPECT_NE(error_of([&] { larger.submit(request, heard); }).find("was saved with --page-size 16"), std::string::npos);

  const auto cancelled = std::make_shared<Answer>();  // not saved
  request.resume = nullptr;
  request.max_tokens = 1000;
  const std::uint64_t id = scheduler.submit(request, cancelled);
  for (int i = 0; i < 5; ++i) scheduler.step();
  scheduler.cancel(id);
  scheduler.step();
  EXPECT_EQ(cancelled->how, Finish::kCancelled);
  EXPECT_TRUE(cancelled->snapshot.empty());
}

std::vector<std::byte> written(const KeptSequence& sequence) {
  std::vector<std::byte> bytes;
  ByteWriter out([&](std::span<const std::byte> data) { bytes.insert(bytes.end(), data.begin(), data.end()); });
  sequence.write(out);
  return bytes;
}

// A saved request whose pages are shared with running ones: the snapshot has its state at the time of saving.
TEST(Scheduler, WhatIsKeptIsWrittenWhileOthersStep) {
  SchedulerOptions options = small_options();
  options.prefix_bytes = options.pool_bytes / 2;
  for (const char* method : {"full", "h2o:budget=40", "streaming:budget=40,mechanism=shift"}) {
    Scheduler scheduler(small_decoder(), nullptr, options);
    Request request{.prompt = std::vector<TokenId>(70, 3), .method = parse_method(method), .max_tokens = 30};
    request.sampler.temperature = 0;
    request.keep = true;
    const auto first = std::make_shared<Answer>(), again = std::make_shared<Answer>();
    first->hold = true;
    scheduler.submit(request, first);
    while (scheduler.step()) {
    }
    ASSERT_NE(first->held, nullptr);
    EXPECT_GT(scheduler.load().reserved_bytes, 0U) << "it has its pages still";
    EXPECT_GT(scheduler.load().used_bytes, 0U);
    std::jthread writer([&] {
      for (int i = 0; i < 20; ++i) first->snapshot = written(*first->held);
    });
    request.max_tokens = 60;
    scheduler.submit(request, again);
    while (scheduler.step()) {
    }
    writer.join();
    first->held.reset();
    scheduler.step();
    EXPECT_EQ(scheduler.load().reserved_bytes, 0U);
    EXPECT_EQ(scheduler.load().used_bytes, 0U);
    const auto rest = std::make_shared<Answer>();
    request.prompt = {};
    request.max_tokens = 30;
    request.resume = on_disk(first->snapshot);
    scheduler.submit(request, rest);
    while (scheduler.step()) {
    }
    std::vector<TokenId> together = first->tokens;
    together.insert(together.end(), rest->tokens.begin(), rest->tokens.end());
    EXPECT_EQ(together, again->tokens) << method;
  }
}

TEST(Scheduler, SequencesOutliveItOrAreGivenUp) {
  const auto kept = std::make_shared<Answer>();
  kept->hold = true;
  Request request{.prompt = std::vector<TokenId>(70, 3), .method = parse_method("full"), .max_tokens = 3};
  request.keep = true;
  {
    Scheduler scheduler(small_decoder(), nullptr, small_options());
    scheduler.submit(request, kept);
    while (scheduler.step()) {
    }
  }
  kept->snapshot = written(*kept->held);
  kept->held.reset();
  request.keep = false;
  request.prompt = {};
  for (int steps = 0; steps < 4; ++steps) {  // cancelled while loading, at each stage
    Scheduler scheduler(small_decoder(), nullptr, small_options());
    request.resume = on_disk(kept->snapshot);
    request.max_tokens = 1000;
    const auto heard = std::make_shared<Answer>();
    const std::uint64_t id = scheduler.submit(request, heard);
    for (int i = 0; i < steps; ++i) scheduler.step();
    scheduler.cancel(id);
    scheduler.step();
    EXPECT_EQ(heard->how, Finish::kCancelled);
    for (int i = 0; i < 1000 && scheduler.load().reserved_bytes + scheduler.load().used_bytes > 0; ++i) {
      scheduler.step();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(scheduler.load().reserved_bytes, 0U);
    EXPECT_EQ(scheduler.load().used_bytes, 0U);
  }
  Scheduler scheduler(small_decoder(), nullptr, small_options());  // destroyed while loading
  request.resume = on_disk(kept->snapshot);
  scheduler.submit(request, std::make_shared<Answer>());
  scheduler.step();
}

// While a large cache is saved or loaded, other requests' steps stay much shorter than that.
TEST(Scheduler, SavingAndRestoringHoldNobodyUp) {
  const std::shared_ptr<const Model> model = Model::from(make_synthetic({.vocabulary = kVocabulary,
                                                                         .width = 64,
                                                                         .layers = 4,
                                                                         .feed_forward = 96,
                                                                         .query_heads = 8,
                                                                         .kv_heads = 8,
                                                                         .head_dim = 256}));
  const auto decoder = std::make_shared<Decoder>(model, 1);
  SchedulerOptions options = small_options();
  options.pool_bytes = std::size_t{1} << 30;
  const auto ms_of = [](auto action) {
    const auto start = Clock::now();
    action();
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  const std::string path = own_file("large.snap");
  double best = 1e9;  // the best of several attempts: other programs may slow the machine down
  for (int attempt = 0; attempt < test_length(10, 10, 1) && best > 0.3; ++attempt) {
    Scheduler scheduler(decoder, nullptr, options);
    const auto heard = std::make_shared<Answer>(), other = std::make_shared<Answer>();
    heard->hold = true;
    Request small{.prompt = {1, 2, 3}, .method = parse_method("streaming:budget=16"), .max_tokens = 1 << 20};
    Request large{.prompt = std::vector<TokenId>(test_length(900U, 900U, 300U), 3),
                  .method = parse_method("full"),
                  .max_tokens = 2};
    large.keep = true;
    const std::uint64_t id = scheduler.submit(small, other);
    scheduler.submit(large, heard);
    double saving = 0, restoring = 0;  // the longest step
    const auto step = [&](double& longest) { longest = std::max(longest, ms_of([&] { scheduler.step(); })); };
    while (heard->tokens.empty()) scheduler.step();  // the prompt
    while (heard->ended == 0) step(saving);
    double write = 0;
    {
      std::jthread writer([&] {
        write = ms_of([&] { write_snapshot(path, [&](ByteWriter& out) { heard->held->write(out); }); });
        heard->held.reset();
      });
      for (int i = 0; i < 50; ++i) step(saving);
    }
    large.resume = std::make_shared<const Snapshot>(path, *model);
    large.prompt = {};
    const auto rest = std::make_shared<Answer>();
    SessionOptions session_options;
    session_options.method = large.method;
    session_options.cache_type = options.cache_type;
    session_options.page_size = options.page_size;
    Session session(decoder, session_options);
    const double read = ms_of([&] { large.resume->load(session.sequence()); });
    scheduler.submit(large, rest);
    while (rest->tokens.empty()) step(restoring);
    scheduler.cancel(id);
    while (scheduler.step()) {
    }
    std::printf("snapshot of %zu MiB: written in %.1f ms, read in %.1f; the longest step meanwhile %.1f and %.1f ms\n",
                large.resume->bytes() >> 20, write, read, saving, restoring);
    best = std::min(best, std::max(saving / write, restoring / read));
  }
  std::filesystem::remove(path);
#ifndef PALIMPSEST_SANITIZED  // sanitizers slow the step down more than the copy
  EXPECT_LT(best, 0.3);
#endif
}

}  // namespace
}  // namespace palimpsest::testing
