// Concurrent requests: each gets the same result as alone, no page is leaked, none starves.
#include "palimpsest/engine/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/engine/scheduler_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

class SchedulerWithPrefixes : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Prefixes, SchedulerWithPrefixes, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Kept" : "Off"; });

TEST_P(SchedulerWithPrefixes, TogetherGivesWhatAloneGives) {
  SchedulerOptions options = small_options();
  options.prefix_bytes = GetParam() ? options.pool_bytes / 2 : 0;
  Scheduler scheduler(small_decoder(), nullptr, options);
  std::mt19937 random(3);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 40; ++i) {
    requests.push_back(random_request(random));
    requests.back().method = parse_method(kMethods[static_cast<std::size_t>(i) % std::size(kMethods)]);
    answers.push_back(std::make_shared<Answer>());
    scheduler.submit(requests.back(), answers.back());
  }
  int steps = 0;
  while (scheduler.step()) ASSERT_LT(++steps, 2000);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[i]->ended, 1);
    EXPECT_EQ(answers[i]->how, Finish::kLength);
    EXPECT_EQ(answers[i]->tokens, alone(requests[i])) << i << ": " << get_option(requests[i].method, "policy");
  }
  const SchedulerLoad load = scheduler.load();
  EXPECT_EQ(load.used_bytes, 0u);
  EXPECT_EQ(load.reserved_bytes, 0u);
  EXPECT_EQ(load.running + load.waiting, 0);
  EXPECT_EQ(load.finished[static_cast<int>(Finish::kLength)], 40);
  EXPECT_EQ(load.prefix_hits > 0, GetParam());
  EXPECT_EQ(load.copied_bytes > 0, GetParam());
}

// Some requests draft, others do not; some are slow readers.
TEST_P(SchedulerWithPrefixes, DraftsDoNotChangeAText) {
  SchedulerOptions options = small_options();
  options.prefix_bytes = GetParam() ? options.pool_bytes / 2 : 0;
  Scheduler scheduler(small_decoder(), nullptr, options);
  std::mt19937 random(7);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Answer>> answers;
  constexpr const char* kDrafting[] = {"full",
                                       "streaming:budget=40",
                                       "streaming:budget=40,mechanism=append",
                                       "streaming:budget=48,every=8",
                                       "h2o:budget=40,every=6",
                                       "h2o:budget=40",
                                       "knorm:budget=40",
                                       "snapkv:budget=48",
                                       "lazy:budget=40,every=6"};
  for (int i = 0; i < 70; ++i) {
    Request r = random_request(random);
    r.method = parse_method(kDrafting[static_cast<std::size_t>(i) % std::size(kDrafting)]);
    r.max_tokens = 60;
    std::vector<TokenId> prompt(r.prompt.begin(), r.prompt.end());
    for (std::size_t t = prompt.size() / 3; t < prompt.size(); ++t) prompt[t] = prompt[t % 7];
    r.prompt = std::move(prompt);
    if (i % 3 > 0) r.drafts = {.max = 1 + i % 6, .min = 0, .adaptive = i % 2 == 0, .price = 0.08};
    requests.push_back(r);
    answers.push_back(std::make_shared<Answer>());
    scheduler.submit(r, answers.back());
  }
  for (int steps = 0; scheduler.step(); ++steps) {
    ASSERT_LT(steps, 6000);
    answers[static_cast<std::size_t>(steps) % answers.size()]->open = steps % 5 != 0;
    for (auto& answer : answers)
      if (steps % 5 == 1) answer->open = true;
  }
  DraftCounts counts;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[i]->how, Finish::kLength) << answers[i]->usage.error;
    EXPECT_EQ(answers[i]->tokens, alone(requests[i])) << i << ": " << spell_short(requests[i].method);
    EXPECT_TRUE(requests[i].drafts.max > 0 || answers[i]->usage.drafts.steps == 0);
    counts += answers[i]->usage.drafts;
  }
  EXPECT_GT(counts.accepted, 100);
  EXPECT_GT(counts.drafts, counts.accepted + 100);
  EXPECT_EQ(scheduler.load().used_bytes, 0U);
}

// A common prefix is read once; the rest of each prompt on its own.
TEST(Scheduler, SequencesThatShareABeginningEvictDifferently) {
  SchedulerOptions options = small_options();
  options.prefix_bytes = options.pool_bytes / 2;
  Scheduler scheduler(small_decoder(), nullptr, options);
  std::mt19937 random(5);
  Request request;
  std::vector<TokenId> prompt(80);
  for (TokenId& t : prompt) t = static_cast<TokenId>(random() % kVocabulary);
  request.max_tokens = 60;
  request.sampler.temperature = 0;
  const auto ask = [&](const char* method, TokenId last) {
    request.method = parse_method(method);
    prompt.back() = last;
    request.prompt = prompt;
    const auto answer = std::make_shared<Answer>();
    scheduler.submit(request, answer);
    while (scheduler.step()) {
    }
    EXPECT_EQ(answer->tokens, alone(request)) << method;
    return answer->usage;
  };
  EXPECT_EQ(ask("h2o:budget=64", 1).cached, 0);
  EXPECT_EQ(ask("h2o:budget=64", 2).cached, 72) << "its own beginnings, whatever left";
  EXPECT_EQ(ask("h2o:budget=50", 3).cached, 48) << "those from which nothing had left";
  EXPECT_EQ(ask("full", 4).cached, 48);
  EXPECT_EQ(ask("full", 5).cached, 72);
  EXPECT_EQ(ask("sparse:budget=72", 6).cached, 72);
  EXPECT_EQ(ask("streaming:budget=40", 7).cached, 24);
  EXPECT_EQ(ask("streaming:budget=40", 8).cached, 72);
  EXPECT_EQ(ask("streaming:budget=40", 8).evicted, 80 + 59 - 40);
  EXPECT_EQ(ask("h2o:budget=64,positions=cache", 9).cached, 0) << "its keys lie un-rotated";
  EXPECT_EQ(ask("knorm:budget=64", 10).cached, 0) << "its scores come at a token's birth";
  const SchedulerLoad load = scheduler.load();
  EXPECT_EQ(load.prefix_queries, 11 * 80);
  EXPECT_EQ(load.prefix_hits, load.prefix_queries - load.prompt_tokens);
  EXPECT_GT(load.copied_bytes, 0);
  EXPECT_EQ(load.used_bytes, 0u);
  EXPECT_GT(load.prefix_bytes, 0u);
}

TEST(Scheduler, AnswersToOnePromptReadItOnce) {
  SchedulerOptions options = small_options();
  options.prefix_bytes = options.pool_bytes / 2;
  Scheduler scheduler(small_decoder(), nullptr, options);
  Request request{.prompt = std::vector<TokenId>(100, 7), .method = parse_method("h2o:budget=40"), .max_tokens = 5};
  request.sampler.temperature = 0;
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 6; ++i) scheduler.submit(request, answers.emplace_back(std::make_shared<Answer>()));
  while (scheduler.step()) {
  }
  const auto truth = alone(request);
  for (const auto& answer : answers) EXPECT_EQ(answer->tokens, truth);
  EXPECT_EQ(scheduler.load().prompt_tokens, 100 + 5 * 4) << "but for what is less than a chunk";
}

TEST(Scheduler, KeptBeginningsGiveWay) {
  SchedulerOptions options = small_options();
  options.prefix_bytes = options.pool_bytes = 112 << 10;  // 96 of pages, the rest of tables
  Scheduler scheduler(small_decoder(), nullptr, options);
  const auto ask = [&](TokenId token, long long tokens) {
    const auto answer = std::make_shared<Answer>();
    Request request{.prompt = std::vector<TokenId>(60, token), .method = parse_method("full"), .max_tokens = tokens};
    request.sampler.temperature = 0;
    scheduler.submit(request, answer);
    int steps = 0;
    while (scheduler.step()) {
      EXPECT_LT(++steps, 500);
      EXPECT_LE(scheduler.load().peak_bytes, options.pool_bytes);
    }
    EXPECT_EQ(answer->how, Finish::kLength);
    EXPECT_EQ(answer->tokens, alone(request));
    return answer->usage.cached;
  };
  for (TokenId token = 0; token < 8; ++token) EXPECT_EQ(ask(token, 2), 0);
  EXPECT_GT(scheduler.load().prefix_bytes, options.pool_bytes / 2);
  EXPECT_EQ(ask(7, 2), 48) << "the newest";
  EXPECT_EQ(ask(0, 2), 0) << "the oldest had to go";
  EXPECT_EQ(ask(7, 130), 48) << "it needs nearly all of the pool, and takes what it shares along";
  EXPECT_LT(scheduler.load().prefix_bytes, options.pool_bytes / 4);
}

TEST(Scheduler, EstimatesWhenItsQueueWillHaveBegun) {
  SchedulerOptions options = small_options();
  options.max_sequences = 2;
  Scheduler scheduler(small_decoder(), nullptr, options);
  EXPECT_EQ(scheduler.seconds_until_begun(), 0);
  std::mt19937 random(7);
  for (int i = 0; i < 80; ++i) scheduler.submit(random_request(random), std::make_shared<Answer>());
  EXPECT_GT(scheduler.seconds_until_begun(), 0) << "before anything was measured";
  while (scheduler.load().waiting > 60) scheduler.step();
  const double estimate = scheduler.seconds_until_begun();
  const auto start = Clock::now();
  while (scheduler.load().waiting > 0) scheduler.step();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  EXPECT_GT(estimate, seconds / 5);
  EXPECT_LT(estimate, seconds * 5);
  while (scheduler.step()) {
  }
  EXPECT_EQ(scheduler.seconds_until_begun(), 0);
}

// Random arrivals, lengths, budgets, cancellations, deadlines and slow readers, with a model of the bookkeeping.
TEST(Scheduler, RandomLoadsLoseNothing) {
  for (unsigned seed = 1; seed <= 8; seed += test_length(1U, 1U, 5U)) {
    std::mt19937 random(seed);
    SchedulerOptions options = small_options();
    options.pool_bytes = (60 + random() % 60) << 10;  // a few sequences
    if (seed > 4) options.pool_bytes *= 4;
    options.prefix_bytes = options.pool_bytes * (seed % 3) / 2;
    options.max_sequences = 1 + static_cast<int>(random() % 8);
    Scheduler scheduler(small_decoder(), nullptr, options);

    struct Known {
      Request request;
      std::shared_ptr<Answer> answer;
      bool cancelled = false, late = false;
      std::size_t enough = SIZE_MAX;
    };
    std::map<std::uint64_t, Known> known;
    long long refused = 0;
    for (int round = 0; round < 400; ++round) {
      if (round < 300 && random() % 3 == 0) {
        Known k{.request = random_request(random), .answer = std::make_shared<Answer>()};
        if (random() % 10 == 0) k.enough = k.answer->enough = 1 + random() % 5;
        if (random() % 10 == 0) k.request.deadline = Clock::now(), k.late = true;
        if (random() % 10 == 0) k.answer->open = false;
        try {
          const std::uint64_t id = scheduler.submit(k.request, k.answer);
          known.emplace(id, std::move(k));
        } catch (const Error& e) {
          EXPECT_NE(std::string(e.what()).find("smaller budget"), std::string::npos) << e.what();
          EXPECT_EQ(k.answer->ended, 0);
          ++refused;
        }
      }
      if (!known.empty() && random() % 12 == 0) {
        auto it = std::next(known.begin(), static_cast<std::ptrdiff_t>(random() % known.size()));
        if (it->second.answer->ended == 0) it->second.cancelled = true;
        scheduler.cancel(it->first);
      }
      if (!known.empty() && random() % 4 == 0)
        std::next(known.begin(), static_cast<std::ptrdiff_t>(random() % known.size()))->second.answer->open = true;
      scheduler.step();
      const SchedulerLoad load = scheduler.load();
      ASSERT_LE(load.reserved_bytes, options.pool_bytes);
      ASSERT_LE(load.used_bytes, load.reserved_bytes) << "somebody holds more than was promised";
      ASSERT_LE(load.prefix_bytes, options.prefix_bytes);
      ASSERT_LE(load.peak_bytes, options.pool_bytes) << "a kept beginning did not give way";
      ASSERT_LE(load.running, options.max_sequences);
    }
    for (auto& [id, k] : known) k.answer->open = true;
    int steps = 0;
    while (scheduler.step()) ASSERT_LT(++steps, 20000) << "somebody waits for ever";

    long long finished = 0;
    for (const auto& [id, k] : known) {
      const Answer& a = *k.answer;
      ASSERT_EQ(a.ended, 1) << id;
      ++finished;
      if (a.how == Finish::kCancelled) {
        EXPECT_TRUE(k.cancelled) << id;
      } else if (a.how == Finish::kDeadline) {
        EXPECT_TRUE(k.late) << id;
      } else if (a.how == Finish::kStopped) {
        EXPECT_EQ(a.tokens.size(), k.enough) << id;
      } else {
        EXPECT_EQ(a.how, Finish::kLength) << id;
        EXPECT_EQ(static_cast<long long>(a.tokens.size()), k.request.max_tokens) << id;
      }
      if (id % 7 == 0) {
        const auto truth = alone(k.request);
        EXPECT_TRUE(std::equal(a.tokens.begin(), a.tokens.end(), truth.begin())) << id;
      }
    }
    const SchedulerLoad load = scheduler.load();
    EXPECT_EQ(load.used_bytes, 0u);
    EXPECT_EQ(load.reserved_bytes, 0u);
    long long heard = 0;
    for (const long long n : load.finished) heard += n;
    EXPECT_EQ(heard, finished);
    EXPECT_GT(finished, 50);
    if (seed > 4) {
      EXPECT_EQ(load.prefix_hits > 100, seed % 3 > 0);
    }
    std::printf("seed %u: %lld finished, %lld refused, %lld steps, %lld of %lld tokens found\n", seed, finished,
                refused, load.steps, load.prefix_hits, load.prefix_queries);
  }
}

// A request that needs most of the pool is not overtaken forever by small ones.
TEST(Scheduler, ALargeRequestIsNotStarved) {
  SchedulerOptions options = small_options();
  options.pool_bytes = 64 << 10;
  Scheduler scheduler(small_decoder(), nullptr, options);
  std::mt19937 random(9);
  const auto small = [&] {
    Request r = random_request(random);
    r.method = parse_method("streaming:budget=32");
    return r;
  };
  for (int i = 0; i < 10; ++i) scheduler.submit(small(), std::make_shared<Answer>());
  Request large = small();
  large.prompt = std::vector<TokenId>(60, 5);
  large.method = parse_method("full");
  large.max_tokens = 30;
  const auto answer = std::make_shared<Answer>();
  scheduler.submit(large, answer);
  int steps = 0;
  while (answer->ended == 0 && ++steps < 1000) {
    if (steps < 500) scheduler.submit(small(), std::make_shared<Answer>());
    scheduler.step();
  }
  EXPECT_EQ(answer->ended, 1);
  EXPECT_LT(steps, 400);
}

TEST(Scheduler, ManyThreadsSubmitAndCancel) {
  SchedulerOptions options = small_options();
  options.prefix_bytes = options.pool_bytes / 2;
  Scheduler scheduler(small_decoder(), nullptr, options);
  std::jthread engine([&](std::stop_token stop) { scheduler.run(stop); });
  std::vector<std::jthread> clients;
  std::mutex mutex;
  std::vector<std::shared_ptr<Answer>> answers;
  for (unsigned c = 0; c < 4; ++c)
    clients.emplace_back([&, c] {
      std::mt19937 random(c);
      for (int i = 0; i < 12; ++i) {
        const auto answer = std::make_shared<Answer>();
        const std::uint64_t id = scheduler.submit(random_request(random), answer);
        if (random() % 3 == 0) scheduler.cancel(id);
        const std::lock_guard lock(mutex);
        answers.push_back(answer);
      }
    });
  clients.clear();  // joins
  for (const auto& answer : answers)
    while (answer->ended == 0) std::this_thread::yield();
  while (scheduler.load().running > 0) std::this_thread::yield();
  EXPECT_EQ(scheduler.load().used_bytes, 0u);
  EXPECT_EQ(answers.size(), 48u);
}

TEST(Scheduler, LogprobsAreOfTheWholeDistribution) {
  Scheduler scheduler(small_decoder(), nullptr, small_options());
  struct Listener final : RequestListener {
    bool written(const SampledToken& token) override {
      EXPECT_EQ(token.top_logprobs.size(), 5u);
      EXPECT_EQ(token.top_logprobs.front().first, token.token);  // greedy
      EXPECT_EQ(token.top_logprobs.front().second, token.logprob);
      for (std::size_t i = 1; i < 5; ++i) EXPECT_GE(token.top_logprobs[i - 1].second, token.top_logprobs[i].second);
      EXPECT_LT(token.logprob, 0);
      return true;
    }
    void finished(Finish, const Usage& usage) override { tokens = usage.tokens; }
    long long tokens = 0;
  };
  const auto listener = std::make_shared<Listener>();
  Request request{.prompt = {1, 2, 3}, .method = parse_method("full"), .max_tokens = 6, .top_logprobs = 5};
  request.sampler.temperature = 0;
  scheduler.submit(request, listener);
  while (scheduler.step()) {
  }
  EXPECT_EQ(listener->tokens, 6);
}

TEST(Scheduler, RefusesWhatCannotBe) {
  SchedulerOptions options = small_options();
  options.max_queue = 2;
  Scheduler scheduler(small_decoder(), nullptr, options);
  const auto says = [&](const Request& request, const std::string& words) {
    const auto answer = std::make_shared<Answer>();
    try {
      scheduler.submit(request, answer);
      ADD_FAILURE() << words;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
    EXPECT_EQ(answer->ended, 0);
  };
  const Request good{.prompt = {1}, .method = parse_method("streaming:budget=32"), .max_tokens = 4};
  Request bad = good;
  bad.prompt = {};
  says(bad, "prompt is empty");
  bad.prompt = {kVocabulary};
  says(bad, "vocabulary of 96");
  bad = good;
  bad.max_tokens = 0;
  says(bad, "max_tokens is 0");
  bad = good;
  bad.method = parse_method("full");
  bad.max_tokens = 1 << 24;
  says(bad, "smaller budget");
  bad = good;
  bad.method = parse_method("window-recompute:budget=8");
  says(bad, "has no cache");
  bad = good;
  bad.method = parse_method("streaming:rerotate=cached-half");
  says(bad, "use rerotate=fused");
  bad = good;
  bad.sampler.grammar = "root ::= \"a\"";
  says(bad, "needs a model with a vocabulary");

  for (int i = 0; i < 2; ++i) scheduler.submit(good, std::make_shared<Answer>());
  EXPECT_THROW(scheduler.submit(good, std::make_shared<Answer>()), QueueFull);
  options.step_tokens = 10;
  EXPECT_THROW(Scheduler(small_decoder(), nullptr, options), Error);
}

TEST(Scheduler, WhoIsLeftAtTheEndIsTold) {
  const auto answer = std::make_shared<Answer>();
  {
    Scheduler scheduler(small_decoder(), nullptr, small_options());
    scheduler.submit({.prompt = {1, 2}, .method = parse_method("full"), .max_tokens = 9}, answer);
    scheduler.step();
  }
  EXPECT_EQ(answer->ended, 1);
  EXPECT_EQ(answer->how, Finish::kCancelled);
}

}  // namespace
}  // namespace palimpsest::testing
