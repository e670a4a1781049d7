#include "palimpsest/graph/backends.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "palimpsest/model/model.h"

namespace palimpsest::testing {
namespace {

constexpr int kBatch = StepThreads::kBatchTokens;

void run_step(Backends& backends, int tokens, std::chrono::milliseconds waiting = {}) {
  backends.begin_step(tokens, true);
  if (waiting.count() > 0) std::this_thread::sleep_for(waiting);
  backends.end_step();
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
