#include "palimpsest/speed/bandwidth.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace palimpsest {
namespace {

// Eight independent sums, so that loads do not wait for one another.
std::uint64_t sum_of(std::span<const std::uint64_t> words) {
  std::array<std::uint64_t, 8> sum{};
  for (std::size_t i = 0; i + 8 <= words.size(); i += 8)
    for (std::size_t lane = 0; lane < 8; ++lane) sum[lane] += words[i + lane];
  std::uint64_t all = 0;
  for (const auto each : sum) all += each;
  return all;
}

}  // namespace

double read_bandwidth(int threads, std::size_t bytes) {
  constexpr int kPasses = 4;
  using Clock = std::chrono::steady_clock;
  const std::size_t words = bytes / sizeof(std::uint64_t) / static_cast<std::size_t>(threads);
  std::atomic<std::uint64_t> sink = 0;
  std::vector<Clock::time_point> ticks;
  ticks.reserve(kPasses + 1);
  std::barrier meet(threads, [&]() noexcept { ticks.push_back(Clock::now()); });
  std::vector<std::thread> team;
  for (int t = 0; t < threads; ++t)
    team.emplace_back([&, t] {
      const std::vector<std::uint64_t> buffer(words, static_cast<std::uint64_t>(t));
      meet.arrive_and_wait();
      for (int pass = 0; pass < kPasses; ++pass) {
        sink += sum_of(buffer);
        meet.arrive_and_wait();
      }
    });
  for (auto& each : team) each.join();
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double seconds =
        std::chrono::duration<double>(ticks[static_cast<std::size_t>(pass) + 1] - ticks[static_cast<std::size_t>(pass)])
            .count();
    best = std::max(best, static_cast<double>(words * sizeof(std::uint64_t)) * threads / seconds);
  }
  return best;
}

}  // namespace palimpsest
