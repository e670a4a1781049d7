#include "palimpsest/fit/normal_equations.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

constexpr std::size_t kInputs = 7;
const std::vector<float> kKnown = {0.5F, -2, 0.25F, 3, 0, -1, 1.5F};

// Samples with targets of the known map, in blocks.
void add_samples(NormalEquations& sums, int blocks, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int block = 0; block < blocks; ++block) {
    const std::size_t count = 20 + static_cast<std::size_t>(block);
    std::vector<float> columns(kInputs * count), target(count);
    for (float& x : columns) x = normal(random);
    for (std::size_t i = 0; i < kInputs; ++i)
      for (std::size_t s = 0; s < count; ++s) target[s] += kKnown[i] * columns[i * count + s];
    sums.add(columns, target);
  }
}

TEST(NormalEquations, RecoverAKnownMap) {
  NormalEquations sums(kInputs);
  add_samples(sums, 5, 1);
  const auto weights = sums.solve(0);
  for (std::size_t i = 0; i < kInputs; ++i) EXPECT_NEAR(weights[i], kKnown[i], 1e-5) << i;
  // A ridge shrinks the weights.
  const auto shrunk = sums.solve(10);
  EXPECT_LT(std::abs(shrunk[3]), 0.5F);
  EXPECT_GT(std::abs(shrunk[3]), 0.01F);
}

TEST(NormalEquations, AreSavedBetweenBlocks) {
  NormalEquations all(kInputs), first(kInputs), second(kInputs);
  add_samples(all, 2, 1);
  add_samples(all, 3, 2);
  add_samples(first, 2, 1);
  std::vector<std::byte> bytes;
  ByteWriter out([&](std::span<const std::byte> data) { bytes.insert(bytes.end(), data.begin(), data.end()); });
  first.save(out);
  ByteReader in(bytes, "sums are damaged");
  second.load(in);
  add_samples(second, 3, 2);
  EXPECT_EQ(all.solve(1e-3), second.solve(1e-3));

  ByteReader again(bytes, "sums are damaged");
  NormalEquations other(kInputs + 1);
  EXPECT_EQ(error_of([&] { other.load(again); }), "sums are damaged: its sums have another size");
}

TEST(NormalEquations, NothingToFit) {
  EXPECT_EQ(NormalEquations(kInputs).solve(1e-3), std::vector<float>(kInputs, 0));
  NormalEquations same(2);
  same.add(std::vector<float>{1, 2, 1, 2}, std::vector<float>{1, 1});
  EXPECT_NE(error_of([&] { same.solve(0); }).find("give another text"), std::string::npos);
  EXPECT_NEAR(same.solve(1e-6)[0], same.solve(1e-6)[1], 1e-5);
}

}  // namespace
}  // namespace palimpsest::testing
