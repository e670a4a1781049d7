#include "palimpsest/core/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <vector>

namespace palimpsest::testing {
namespace {

TEST(ThreadPool, EveryIndexOnceInEveryLoop) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool workers(threads);
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

TEST(ThreadPool, ThrowsWhatABodyThrew) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool workers(threads);
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> calls = 0;
      const auto body = [&](int i) {
        ++calls;
        if (i == 3) throw std::bad_alloc();
      };
      EXPECT_THROW(workers.run(1000, body), std::bad_alloc);
      EXPECT_GE(calls, 1) << "a thread that holds an earlier index may see the failure before it calls";
      EXPECT_LE(calls, 1000);
      calls = 0;
      workers.run(3, body);
      EXPECT_EQ(calls, 3) << "the next loop is a new one";
    }
  }
}

// A thread that comes late to a loop that has ended must not take an index of the one that is being prepared: it would
// be called twice, and the loop would not end. Short loops before long ones show it, with more threads than cores.
TEST(ThreadPool, CallsEachIndexOnceInLoopsThatFollowAtOnce) {
  for (const int threads : {4, 16}) {
    ThreadPool workers(threads);
    std::vector<std::atomic<int>> calls(64);
    for (int round = 0; round < 6000; ++round)
      for (const int count : {3, 64}) {
        for (auto& each : calls) each = 0;
        workers.run(count, [&](int i) { ++calls[static_cast<std::size_t>(i)]; });
        for (int i = 0; i < 64; ++i)
          ASSERT_EQ(calls[static_cast<std::size_t>(i)], i < count ? 1 : 0) << i << " of " << count;
      }
  }
}

// Bodies longer than a thread spins, and pauses between loops: threads and the caller sleep and are woken.
TEST(ThreadPool, SleepsAndWakes) {
  ThreadPool workers(3);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> sum = 0;
    workers.run(5, [&](int i) {
      if (i % 2 == round % 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      sum += i;
    });
    ASSERT_EQ(sum, 10);
    if (round % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST(ThreadPool, AThreadThatIsLateDelaysNothing) {
  ThreadPool workers(2);
  for (int round = 0; round < 2000; ++round) {  // shorter than a thread takes to wake
    std::atomic<int> sum = 0;
    workers.run(2, [&](int i) { sum += i + 1; });
    ASSERT_EQ(sum, 3);
  }
}

TEST(ThreadPool, UsesAsManyThreadsAsTold) {
  ThreadPool workers(4);
  for (const int used : {2, 1, 4, 3, 9, 0}) {
    workers.use(used);
    EXPECT_EQ(workers.threads(), std::clamp(used, 1, 4));
    std::mutex mutex;
    std::set<std::thread::id> seen;
    std::atomic<int> calls = 0;
    workers.run(200, [&](int) {
      ++calls;
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(calls, 200);
    EXPECT_LE(std::ssize(seen), workers.threads());
    EXPECT_TRUE(seen.contains(std::this_thread::get_id()) || workers.threads() > 1);
  }
}

}  // namespace
}  // namespace palimpsest::testing
