#include "palimpsest/core/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "palimpsest/core/error.h"

namespace palimpsest::testing {
namespace {

RopeOptions options(int dims, double base) {
  RopeOptions o;
  o.dims = dims;
  o.base = base;
  return o;
}

TEST(Rope, AnglesFollowTheFormula) {
  const RopeFrequencies rope(options(64, 10000));
  for (Position p : {Position{0}, Position{1}, Position{7}, Position{4095}, Position{1'000'000}, Position{1} << 31}) {
    for (int i = 0; i < rope.pairs(); ++i) {
      const long double exact = p * std::pow(10000.0L, -2.0L * i / 64);
      // The double nearest to a frequency is off by up to 2^-54 of it.
      const double bound = 4e-16 + static_cast<double>(exact) * 0x1p-53;
      EXPECT_NEAR(std::cos(rope.angle(p, i)), static_cast<double>(std::cos(exact)), bound) << p << " " << i;
      EXPECT_NEAR(std::sin(rope.angle(p, i)), static_cast<double>(std::sin(exact)), bound) << p << " " << i;
    }
  }
}

// Computed with 600 bits (mpmath) from the double nearest to the frequency.
TEST(Rope, FarPositionsAreExact) {
  struct Golden {
    Position position;
    double base;
    int pair;
    double angle;
  };
  const Golden golden[] = {
      {12345, 10000, 1, 2.312056733636889},
      {12345, 500000, 17, -0.9809106847973139},
      {Position{1} << 31, 10000, 1, -0.4539272224840169},
      {(Position{1} << 31) + 1, 500000, 17, 0.47158713877276576},
      {1'000'000'000'000, 10000, 1, 1.5636517207329061},
      {1'000'000'000'000, 500000, 17, 2.70151592484187},
      {(Position{1} << 53) - 1, 10000, 1, 2.4473578253474817},
      {(Position{1} << 53) - 1, 500000, 17, -1.2997680180335298},
  };
  for (const Golden& g : golden) {
    const RopeFrequencies rope(options(64, g.base));
    EXPECT_NEAR(rope.angle(g.position, g.pair), g.angle, 1e-15) << g.position << " " << g.pair;
  }
}

#ifdef __SIZEOF_FLOAT128__
// Position times frequency needs 84 bits, which quadruple precision has; its remainder by 2 pi (113 bits of it) has an
// error of 1e-24. Every pair, at both ends of the range and at random positions.
TEST(Rope, AnglesAreExactUpToTwoToTheThirtyFirst) {
  __extension__ using Quad = __float128;
  // 2 pi = 6.487ED5110B4611A6 2633145C06E0E689... in base 16.
  const Quad two_pi =
      static_cast<Quad>(0x6487ED5110B4611AULL) / static_cast<Quad>(1ULL << 60) +
      static_cast<Quad>(0x62633145C06E0E68ULL) / static_cast<Quad>(1ULL << 62) / static_cast<Quad>(1ULL << 62);
  std::vector<Position> positions = {0, 1, (Position{1} << 31) - 1, Position{1} << 31};
  std::mt19937_64 random(7);
  for (int n = 0; n < 2000; ++n) positions.push_back(static_cast<Position>(random() >> (33 + n % 20)));
  for (const double base : {10000.0, 500000.0}) {
    const RopeFrequencies rope(options(64, base));
    for (const Position p : positions)
      for (int pair = 0; pair < rope.pairs(); ++pair) {
        const Quad angle = static_cast<Quad>(rope.angle(1, pair)) * static_cast<Quad>(p);  // below pi: the frequency
        const auto turns = static_cast<long long>(angle / two_pi);
        const auto rest = static_cast<double>(angle - static_cast<Quad>(turns) * two_pi);
        EXPECT_NEAR(std::remainder(rope.angle(p, pair) - rest, 2 * std::numbers::pi), 0, 1e-15) << p << " " << pair;
      }
  }
}
#endif

// The angle between two tokens depends only on their distance, at any position.
TEST(Rope, DistancesDoNotDrift) {
  const RopeFrequencies rope(options(128, 500000));
  std::mt19937_64 random(1);
  for (int n = 0; n < 2000; ++n) {
    const Position far = static_cast<Position>(random() >> 12), distance = static_cast<Position>(random() % 100'000);
    const int pair = static_cast<int>(random() % 64);
    const double difference = rope.angle(far + distance, pair) - rope.angle(far, pair) - rope.angle(distance, pair);
    EXPECT_NEAR(std::remainder(difference, 2 * std::numbers::pi), 0, 2e-15) << far << " " << distance << " " << pair;
    EXPECT_LE(std::abs(rope.angle(far, pair)), std::numbers::pi);
  }
}

TEST(Rope, LinearScaleDividesPositions) {
  RopeOptions o = options(32, 10000);
  o.linear_scale = 4;
  const RopeFrequencies scaled(o), plain(options(32, 10000));
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(scaled.angle(4000, i), plain.angle(1000, i), 1e-12);
  EXPECT_EQ(scaled.magnitude(), 1);
}

TEST(Rope, FactorsDivideFrequencies) {
  RopeOptions o = options(8, 10000);
  o.factors = {1, 2, 8, 32};
  const RopeFrequencies rope(o), plain(options(8, 10000));
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(rope.angle(3, i), plain.angle(3, i) / o.factors[i], 1e-15);
}

// dims 128, base 10000, context 4096, scale 16: ggml's ramp runs from pair floor(20.94) = 20 to pair ceil(45.03) = 46.
TEST(Rope, YarnKeepsFastPairsAndInterpolatesSlowOnes) {
  RopeOptions o = options(128, 10000);
  o.linear_scale = 16;
  o.yarn_ext_factor = 1;
  o.original_context = 4096;
  const RopeFrequencies yarn(o), plain(options(128, 10000));
  EXPECT_NEAR(yarn.magnitude(), 1 + 0.1 * std::log(16.0), 1e-15);
  for (int i = 0; i < 64; ++i) {
    const double keep = i <= 20 ? 1 : i >= 46 ? 0 : (46 - i) / 26.0;
    const double frequency = plain.angle(1, i);
    EXPECT_NEAR(yarn.angle(1, i), frequency * keep + frequency / 16 * (1 - keep), 1e-15) << i;
  }
}

TEST(Rope, RowsHoldMagnitudeTimesCosAndSin) {
  RopeOptions o = options(4, 100);
  o.yarn_attn_factor = 2;
  const RopeFrequencies rope(o);
  float row[4];
  rope.row(5, row);
  EXPECT_FLOAT_EQ(row[0], static_cast<float>(2 * std::cos(5.0)));
  EXPECT_FLOAT_EQ(row[1], static_cast<float>(2 * std::cos(0.5)));
  EXPECT_FLOAT_EQ(row[2], static_cast<float>(2 * std::sin(5.0)));
  EXPECT_FLOAT_EQ(row[3], static_cast<float>(2 * std::sin(0.5)));
}

TEST(Rope, RefusesNonsense) {
  EXPECT_THROW(RopeFrequencies(options(7, 10000)), Error);
  EXPECT_THROW(RopeFrequencies(options(8, 0)), Error);
  RopeOptions o = options(8, 10000);
  o.factors = {1, 1, 1};
  EXPECT_THROW(RopeFrequencies{o}, Error);
  o.factors = {1, 1, 1, 0};
  EXPECT_THROW(RopeFrequencies{o}, Error);
  o = options(8, 10000);
  o.yarn_ext_factor = 1;
  EXPECT_THROW(RopeFrequencies{o}, Error);
}

}  // namespace
}  // namespace palimpsest::testing
