#include "palimpsest/graph/backends.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "palimpsest/model/model.h"

namespace palimpsest::testing {
namespace {

constexpr int kBatch = StepThreads::kBatchTokens;

TEST(BackendsTest, ABatchThatWaitedForCoresIsFollowedBySixteenWithFewThreads) {
  const auto model = Model::synthetic("tiny");
  Backends backends(*model, {1, 2});
  const auto nothing = [] {};
  for (int i = 0; i < 17 && backends.threads() != 2; ++i)
    backends.run_step(kBatch, nothing);  // the machine may be busy
  ASSERT_EQ(backends.threads(), 2);
  backends.run_step(kBatch, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  EXPECT_EQ(backends.threads(), 2);
  for (int i = 0; i < 16; ++i) {
    backends.run_step(kBatch, nothing);
    EXPECT_EQ(backends.threads(), 1) << i;
  }
  backends.run_step(kBatch, nothing);
  EXPECT_EQ(backends.threads(), 2);
  backends.run_step(kBatch - 1, nothing);
  EXPECT_EQ(backends.threads(), 1);
}

TEST(BackendsTest, GivenThreadsStay) {
  const auto model = Model::synthetic("tiny");
  Backends backends(*model, 2);
  for (int i = 0; i < 3; ++i) {
    backends.run_step(kBatch, [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    EXPECT_EQ(backends.threads(), 2);
  }
}

}  // namespace
}  // namespace palimpsest::testing
