// Bounds on the steps that a request waits for its first token, whatever other requests there are.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/engine/scheduler_fixture.h"

namespace palimpsest::testing {
namespace {

SchedulerOptions tight_options() {
  SchedulerOptions options = small_options();
  options.step_tokens = options.max_sequences + options.chunk;  // one chunk a step
  options.pool_bytes = std::size_t{64} << 20;
  return options;
}

Request request_of(int prompt, long long tokens = 4) {
  Request r{.prompt = std::vector<TokenId>(static_cast<std::size_t>(prompt), 7),
            .method = parse_method("streaming:budget=40"),
            .max_tokens = tokens};
  r.sampler.temperature = 0;
  return r;
}

std::shared_ptr<Answer> submit(Scheduler& scheduler, const Request& request) {
  const auto answer = std::make_shared<Answer>();
  scheduler.submit(request, answer);
  return answer;
}

int steps_until_first_token(Scheduler& scheduler, const Answer& answer) {
  int steps = 0;
  while (answer.tokens.empty() && scheduler.step()) ++steps;
  EXPECT_FALSE(answer.tokens.empty());
  return steps;
}

TEST(SchedulerFairness, AShortPromptWaitsForNoLongOne) {
  Scheduler scheduler(small_decoder(), nullptr, tight_options());
  const auto writing = submit(scheduler, request_of(3, 1000));
  EXPECT_EQ(steps_until_first_token(scheduler, *writing), 1);
  const auto first = submit(scheduler, request_of(100 * kChunk)), second = submit(scheduler, request_of(90 * kChunk));
  for (int i = 0; i < 5; ++i) scheduler.step();
  for (const int tokens : {5, kChunk - 1, kChunk, 3 * kChunk}) {
    const std::size_t written = writing->tokens.size();
    const auto answer = submit(scheduler, request_of(tokens));
    const int chunks = (tokens + kChunk - 1) / kChunk;
    const int steps = steps_until_first_token(scheduler, *answer);
    EXPECT_LE(steps, 2 * chunks + 1) << tokens << " tokens";
    EXPECT_EQ(writing->tokens.size(), written + static_cast<std::size_t>(steps))
        << "an answer gets its token every step";
    EXPECT_TRUE(first->tokens.empty() && second->tokens.empty());
    while (answer->ended == 0) scheduler.step();
    EXPECT_EQ(answer->tokens, alone(request_of(tokens)));
  }
}

// Endless prompts that fill each step: the long prompt still gets every other chunk.
TEST(SchedulerFairness, ALongPromptGetsEveryOtherChunk) {
  Scheduler scheduler(small_decoder(), nullptr, tight_options());
  constexpr int kChunks = 40;
  const auto answer = submit(scheduler, request_of(kChunks * kChunk));
  int steps = 0;
  std::vector<std::shared_ptr<Answer>> others;
  for (; answer->tokens.empty() && steps < 10 * kChunks; ++steps) {
    others.push_back(submit(scheduler, request_of(kChunk, 1)));
    scheduler.step();
  }
  EXPECT_LE(steps, 2 * kChunks + 2);
  EXPECT_GT(std::ranges::count_if(others, [](const auto& other) { return other->ended == 1; }), kChunks / 2);
}

TEST(SchedulerFairness, AQueueOfLongPromptsDoesNotKeepAShortOneOut) {
  SchedulerOptions options = tight_options();
  Scheduler scheduler(small_decoder(), nullptr, options);
  std::vector<std::shared_ptr<Answer>> longs;
  for (int i = 0; i < 2 * options.max_sequences; ++i) longs.push_back(submit(scheduler, request_of(60 * kChunk)));
  for (int i = 0; i < 5; ++i) scheduler.step();
  EXPECT_EQ(scheduler.load().running, options.max_sequences - options.max_sequences / 8);
  EXPECT_LE(steps_until_first_token(scheduler, *submit(scheduler, request_of(5))), 3);

  // A request that waits for memory is overtaken by one that fits.
  SchedulerOptions small = tight_options();
  small.pool_bytes = std::size_t{192} << 10;
  Scheduler full(small_decoder(), nullptr, small);
  Request large = request_of(200, 100);
  large.method = parse_method("full");
  const auto first = submit(full, large), second = submit(full, large);
  for (int i = 0; i < 3; ++i) full.step();
  EXPECT_EQ(full.load().running, 1);
  EXPECT_LE(steps_until_first_token(full, *submit(full, request_of(5))), 3);
  EXPECT_EQ(full.load().waiting, 1);
  while (full.step()) {
  }
  EXPECT_EQ(second->ended, 1);
  EXPECT_EQ(second->tokens, first->tokens);
}

}  // namespace
}  // namespace palimpsest::testing
