#include "palimpsest/graph/backends.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "palimpsest/model/model.h"

namespace palimpsest::testing {
namespace {

constexpr int kBatch = StepThreads::kBatchTokens;

void run_step(Backends& backends, int tokens, std::chrono::milliseconds waiting = {}) {
  backends.begin_step(tokens);
  if (waiting.count() > 0) std::this_thread::sleep_for(waiting);
  backends.end_step();
}

TEST(BackendsTest, ABatchThatWaitedForCoresIsFollowedBySixteenWithFewThreads) {
  const auto model = Model::synthetic("tiny");
  Backends backends(*model, {1, 2});
  for (int i = 0; i < 17 && backends.threads() != 2; ++i) run_step(backends, kBatch);  // the machine may be busy
  ASSERT_EQ(backends.threads(), 2);
  run_step(backends, kBatch, std::chrono::milliseconds(20));
  EXPECT_EQ(backends.threads(), 2);
  for (int i = 0; i < 16; ++i) {
    run_step(backends, kBatch);
    EXPECT_EQ(backends.threads(), 1) << i;
  }
  run_step(backends, kBatch);
  EXPECT_EQ(backends.threads(), 2);
  run_step(backends, kBatch - 1);
  EXPECT_EQ(backends.threads(), 1);
}

TEST(BackendsTest, GivenThreadsStay) {
  const auto model = Model::synthetic("tiny");
  Backends backends(*model, 2);
  for (int i = 0; i < 3; ++i) {
    run_step(backends, kBatch, std::chrono::milliseconds(2));
    EXPECT_EQ(backends.threads(), 2);
  }
}

}  // namespace
}  // namespace palimpsest::testing
