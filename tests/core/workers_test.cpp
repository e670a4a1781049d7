#include "palimpsest/core/workers.h"

#include <gtest/gtest.h>

#include <atomic>

namespace palimpsest::testing {
namespace {

TEST(Workers, EveryIndexOnceInEveryLoop) {
  for (const int threads : {1, 2, 5}) {
    Workers workers(threads);
    EXPECT_EQ(workers.threads(), threads);
    for (const int count : {0, 1, 2, 7, 300}) {
      for (int round = 0; round < 20; ++round) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
        workers.run(count, [&](int i) { ++seen[static_cast<std::size_t>(i)]; });
        for (const auto& times : seen) ASSERT_EQ(times, 1) << threads << " threads, " << count << " indices";
      }
    }
  }
}

}  // namespace
}  // namespace palimpsest::testing
