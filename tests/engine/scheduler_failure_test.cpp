// A failing request ends alone: the loop continues, and other requests' texts do not change.
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <random>
#include <vector>

#include "tests/engine/allocations.h"
#include "tests/engine/scheduler_fixture.h"
#include "tests/support/test_length.h"

// ggml and libllama's samplers leak what they have allocated if their next call of operator new fails.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libggml-base\nleak:llama_sampler_init\n";
}

namespace palimpsest::testing {
namespace {

// A listener that allocates nothing after its construction.
struct Ready final : RequestListener {
  Ready() { tokens.reserve(100); }
  bool written(const SampledToken& token) override {
    tokens.push_back(token.token);
    return true;
  }
  void finished(Finish finish, const Usage& u) noexcept override {
    how = finish;
    said_why = !u.error.empty();
    ++ended;
  }
  std::vector<TokenId> tokens;
  std::optional<Finish> how;
  bool said_why = false;
  int ended = 0;
};

struct Asked {
  Request request;
  std::vector<TokenId> alone;
};

std::vector<Asked> some_requests() {
  std::mt19937 random(11);
  std::vector<Asked> asked;
  for (const char* method : {"full", "h2o:budget=20", "streaming:budget=24,mechanism=shift", "keydiff:budget=24",
                             "kvzip:budget=20,schedule=prompt+step", "streaming:budget=24,rerotate=recompute"}) {
    Request r;
    std::vector<TokenId> prompt(30, 5);
    prompt.back() = static_cast<TokenId>(random() % kVocabulary);
    r.prompt = prompt;
    r.method = parse_method(method);
    r.max_tokens = 4;
    r.sampler.temperature = 0;
    r.reuse = Reuse::kHistories;
    asked.push_back({r, alone(r)});
  }
  asked.front().request.top_logprobs = 3;
  asked.back().request.keep = true;
  return asked;
}

// Runs the loop with the n-th allocation failing; returns whether there were as many.
bool run_with_failure(const std::vector<Asked>& asked, long long n, int& failures) {
  SchedulerOptions options = small_options();
  options.prefix_bytes = options.pool_bytes / 2;
  Scheduler scheduler(small_decoder(), nullptr, options);
  std::vector<std::shared_ptr<Ready>> heard;
  for (const Asked& a : asked) {
    heard.push_back(std::make_shared<Ready>());
    scheduler.submit(a.request, heard.back());
  }
  fail_allocation(n);
  int steps = 0;
  try {
    while (scheduler.step() && steps < 200) ++steps;
  } catch (const std::exception& e) {
    fail_no_allocation();
    ADD_FAILURE() << "allocation " << n << " ended the loop: " << e.what();
    return false;
  }
  const bool failed = allocation_failed();
  fail_no_allocation();
  EXPECT_LT(steps, 200) << n;
  int ended = 0;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    EXPECT_EQ(heard[i]->ended, 1) << n << ", request " << i;
    if (heard[i]->how == Finish::kLength) {
      EXPECT_EQ(heard[i]->tokens, asked[i].alone) << n << ", request " << i;
      continue;
    }
    EXPECT_EQ(heard[i]->how, Finish::kFailed) << n << ", request " << i;
    EXPECT_TRUE(heard[i]->said_why) << n << ", request " << i;
    EXPECT_TRUE(std::ranges::equal(heard[i]->tokens, std::span(asked[i].alone).first(heard[i]->tokens.size())));
    ++ended;
  }
  EXPECT_LE(ended, failed ? 1 : 0) << n << ": others were ended, too";
  failures += ended;
  const SchedulerLoad load = scheduler.load();
  EXPECT_EQ(load.used_bytes + load.reserved_bytes, 0u) << n;
  EXPECT_EQ(load.running + load.waiting, 0) << n;

  // The loop continues.
  const auto after = std::make_shared<Ready>();
  scheduler.submit(asked.front().request, after);
  while (scheduler.step()) {
  }
  EXPECT_EQ(after->tokens, asked.front().alone) << n;
  return failed;
}

TEST(SchedulerFailure, AnyAllocation) {
  const std::vector<Asked> asked = some_requests();
  const int every = test_length(1, 1, 7);
  long long n = 0;
  int failures = 0;
  while (!HasFailure() && run_with_failure(asked, n, failures)) n += every;
  std::printf("%lld allocations failed, one at a time; %d ended their request\n", n / every, failures);
  EXPECT_GT(n, 100);
  EXPECT_GT(failures, 10 / every);
}

}  // namespace
}  // namespace palimpsest::testing
