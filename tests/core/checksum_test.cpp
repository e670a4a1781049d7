// The checksum is part of the format of snapshots and scorers; it must not change.
#include "palimpsest/core/checksum.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

namespace palimpsest::testing {
namespace {

// The definition, one byte at a time.
std::uint64_t by_bytes(std::span<const std::byte> data) {
  std::uint64_t hash = 0xCBF29CE484222325u, word = 0;
  int filled = 0;
  const auto mix = [&] {
    hash = (hash ^ word) * 0x100000001B3u;
    hash ^= hash >> 29;
    word = 0;
    filled = 0;
  };
  for (const std::byte b : data) {
    word |= static_cast<std::uint64_t>(b) << (8 * filled);
    if (++filled == 8) mix();
  }
  if (filled > 0) mix();
  return hash;
}

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937_64 random(5);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(Checksum, KnownValues) {
  EXPECT_EQ(Checksum{}.value(), 0xCBF29CE484222325u);
  const std::string text = "palimpsest of nineteen";
  Checksum sum;
  sum.add(std::as_bytes(std::span(text)));
  EXPECT_EQ(sum.value(), 0X782DD913F9A570EDu);
}

TEST(Checksum, EveryCutGivesTheSameValue) {
  const auto bytes = random_bytes(301);
  for (std::size_t size = 0; size <= bytes.size(); size += 7) {
    const auto all = std::span(bytes).first(size);
    for (std::size_t a = 0; a <= size; a += 5)
      for (std::size_t b = a; b <= size; b += 11) {
        Checksum sum;
        sum.add(all.first(a));
        sum.add(all.subspan(a, b - a));
        sum.add(all.subspan(b));
        ASSERT_EQ(sum.value(), by_bytes(all)) << size << " cut at " << a << " and " << b;
      }
  }
}

// Faster than the definition because it reads words, not bytes (measured: 7 times).
TEST(Checksum, ReadsWords) {
#if defined(NDEBUG) && !defined(PALIMPSEST_SANITIZED)
  const auto bytes = random_bytes(16 << 20);
  const auto seconds = [&](auto run) {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      run();
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
  };
  std::uint64_t a = 0, b = 0;
  const double slow = seconds([&] { a = by_bytes(bytes); });
  const double fast = seconds([&] {
    Checksum sum;
    sum.add(bytes);
    b = sum.value();
  });
  EXPECT_EQ(a, b);
  std::printf("by bytes %.2f GB/s, Checksum %.2f GB/s\n", 16.8e-3 / slow, 16.8e-3 / fast);
  EXPECT_LT(fast, slow / 2);
#endif
}

}  // namespace
}  // namespace palimpsest::testing
