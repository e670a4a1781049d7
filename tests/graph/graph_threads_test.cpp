#include "palimpsest/graph/graph_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>

namespace palimpsest::testing {
namespace {

TEST(GraphThreads, EveryIndexOnceInEveryLoop) {
  for (const int threads : {1, 2, 5}) {
    GraphThreads workers(threads);
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

TEST(GraphThreads, ThrowsWhatABodyThrew) {
  for (const int threads : {1, 2, 5}) {
    GraphThreads workers(threads);
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> calls = 0;
      const auto body = [&](int i) {
        ++calls;
        if (i == 3) throw std::bad_alloc();
      };
      EXPECT_THROW(workers.run(1000, body), std::bad_alloc);
      EXPECT_GE(calls, 4);
      calls = 0;
      workers.run(3, body);
      EXPECT_EQ(calls, 3) << "the next loop is a new one";
    }
  }
}

}  // namespace
}  // namespace palimpsest::testing
