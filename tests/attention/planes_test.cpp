// q3 and q2: the fitted scale, stored bytes, and their change when slots are overwritten and moved.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/relocate_rows.h"
#include "tests/support/error_of.h"
#include "tests/support/slot_rows.h"

namespace palimpsest::testing {
namespace {

constexpr CacheType kFew[] = {CacheType::kQ3, CacheType::kQ2};

int bits_of(CacheType type) {
  return type == CacheType::kQ3 ? 3 : 2;
}

LayerView view_of(CacheType type) {
  return {.head_dim = 96, .value_dim = 64, .page_size = 32, .key_type = type, .value_type = type};
}

std::vector<float> normal_row(int dim, std::mt19937& random, float deviation = 1) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> row(static_cast<std::size_t>(dim));
  for (float& x : row) x = normal(random);
  return row;
}

double square_of(const std::vector<float>& row) {
  double sum = 0;
  for (const float x : row) sum += double{x} * x;
  return sum;
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

// The smallest squared error of a group, over all scales of a fine grid and both kinds of levels: the oracle of the
// fitted scale.
double best_error(const float* row, int bits) {
  const int top = (1 << bits) - 1;
  double max = 0, best = INFINITY;
  for (int i = 0; i < 32; ++i) max = std::max(max, std::abs(double{row[i]}));
  for (const int offset : {0, 1})
    for (const int sign : {1, -1})
      for (double unit = 0.2; unit <= 1.3; unit += 0.002) {
        const double scale = sign * unit * max / top;
        double error = 0;
        for (int i = 0; i < 32; ++i) {
          double nearest = INFINITY;
          for (int code = 0; code <= top; ++code)
            nearest = std::min(nearest, std::abs(row[i] - scale * (2 * code - top - offset)));
          error += nearest * nearest;
        }
        best = std::min(best, error);
      }
  return best;
}

TEST(Planes, TokensTakeTheirBitsAndAScaleForThirtyTwo) {
  for (const CacheType type : kFew) {
    const LayerView v = view_of(type);
    const auto bits = static_cast<std::size_t>(bits_of(type));
    EXPECT_EQ(page_bytes(v), 32 * (96 * bits / 8 + 96 / 32 * 2) + 32 * (64 * bits / 8 + 64 / 32 * 2));
    EXPECT_EQ(kv_format(type).bits(), static_cast<double>(bits) + 0.5);
  }
}

// The transform is orthogonal: errors of a row are those of the rotated row.
TEST(Planes, TheScaleIsNearlyTheBest) {
  std::mt19937 random(2);
  for (const CacheType type : kFew) {
    const int bits = bits_of(type);
    double all = 0, of_best = 0, squares = 0;
    for (int n = 0; n < 200; ++n) {
      std::vector<float> row = normal_row(64, random, std::exp2(static_cast<float>(n % 9 - 4)));
      if (n % 3 == 1) row[5] *= 12;                         // a channel with large elements
      if (n % 3 == 2) row[5] *= 9, row[37] = -7 * row[36];  // two
      std::vector<float> rotated = row;
      nibbles::transform(rotated.data(), 64, 1);
      const double square = square_of(row), error = squared_error(row, rounded_to(type, row)) / square,
                   best = (best_error(rotated.data(), bits) + best_error(rotated.data() + 32, bits)) / square;
      ASSERT_LE(error, best * 1.6) << kv_format(type).name << " row " << n;
      all += error, of_best += best, squares += 1;
    }
    EXPECT_LE(all, of_best * 1.02) << kv_format(type).name;
    EXPECT_LE(all / squares, bits == 3 ? 0.027 : 0.105) << "of normal rows: 0.025 and 0.097";
    EXPECT_GE(all / squares, bits == 3 ? 0.015 : 0.06);
  }
}

// Rows that have one number, so that the rotated numbers have one magnitude (odd levels); rows of one value, so that
// there is one rotated number in each block (even levels); rows of 0.
TEST(Planes, RowsOfOneNumberAreExact) {
  for (const CacheType type : kFew)
    for (const int dim : {32, 64, 96, 128, 256})
      for (const int at : {0, 5, 31}) {
        std::vector<float> row(static_cast<std::size_t>(dim));
        EXPECT_EQ(rounded_to(type, row), row);
        row[static_cast<std::size_t>(at)] = 3;
        const std::vector<float> stored = rounded_to(type, row);
        for (std::size_t d = 0; d < row.size(); ++d) EXPECT_NEAR(stored[d], row[d], 4e-3) << dim;
        const std::vector<float> alike(static_cast<std::size_t>(dim), static_cast<float>(1 - at));
        const std::vector<float> stored_alike = rounded_to(type, alike);
        for (std::size_t d = 0; d < row.size(); ++d) EXPECT_NEAR(stored_alike[d], alike[d], 1e-3 * at + 1e-3) << dim;
      }
}

// A slot is overwritten in place: no byte of another slot changes. Together the slots own all bytes.
TEST(Planes, NoByteBelongsToTwoSlots) {
  std::mt19937 random(4);
  for (const CacheType type : kFew) {
    const KvFormat& format = kv_format(type);
    for (const int dim : {32, 96, 128})
      for (const bool value : {false, true}) {
        std::vector<std::set<std::size_t>> written(kTile);
        std::vector<std::byte> tile(static_cast<std::size_t>(dim * format.tile_bytes));
        for (int n = 0; n < 40; ++n)
          for (int lane = 0; lane < kTile; ++lane) {
            const std::vector<std::byte> before = tile;
            const auto row = normal_row(dim, random);
            (value ? format.encode_value : format.encode_key)(row.data(), dim, tile.data(), lane);
            for (std::size_t i = 0; i < tile.size(); ++i)
              if (tile[i] != before[i]) written[static_cast<std::size_t>(lane)].insert(i);
          }
        std::set<std::size_t> all;
        for (const auto& mine : written) all.insert(mine.begin(), mine.end());
        for (const auto& mine : written) EXPECT_EQ(mine.size(), tile.size() / kTile);
        EXPECT_EQ(all.size(), tile.size());
      }
  }
}

TEST(Planes, KeysAndValuesMoveWithTheirScales) {
  for (const CacheType type : kFew) {
    const LayerView v = view_of(type);
    std::vector<std::byte> bytes(2 * page_bytes(v));
    constexpr PageId kIds[] = {1, 0};
    const BlockTable pages = {kIds, bytes.data(), page_bytes(v)};
    std::mt19937 random(6);
    std::vector<std::vector<float>> token(64);
    const auto read = [&](int slot) {
      std::vector<float> all = key_in(v, pages[slot / 32], slot % 32);
      const std::vector<float> value = value_in(v, pages[slot / 32], slot % 32);
      all.insert(all.end(), value.begin(), value.end());
      return all;
    };
    for (int slot = 0; slot < 64; ++slot) {
      const auto row = normal_row(96, random, std::exp2(static_cast<float>(slot % 7)));
      store_key(v, pages[slot / 32], slot % 32, row.data());
      store_value(v, pages[slot / 32], slot % 32, row.data() + 16);
      token[static_cast<std::size_t>(slot)] = read(slot);
    }
    std::vector<Move> moves;  // drops every third slot
    std::vector<int> kept;
    for (int slot = 0; slot < 64; ++slot) {
      if (slot % 3 == 1) continue;
      if (static_cast<int>(kept.size()) < slot) moves.push_back({slot, static_cast<int>(kept.size())});
      kept.push_back(slot);
    }
    relocate_rows(v, pages, pages, moves);
    for (std::size_t slot = 0; slot < kept.size(); ++slot)
      EXPECT_EQ(read(static_cast<int>(slot)), token[static_cast<std::size_t>(kept[slot])]) << slot;
  }
}

TEST(Planes, NumbersThatDoNotFitAreFound) {
  for (const CacheType type : kFew) {
    const KvFormat& format = kv_format(type);
    for (const int dim : {32, 128}) {
      std::vector<float> row(static_cast<std::size_t>(dim), 0.0F);
      const auto fits = [&](float number) {
        std::vector<std::byte> tile(static_cast<std::size_t>(dim * format.tile_bytes));
        for (float& x : row) x = number;  // the largest sum of the transform
        format.encode_key(row.data(), dim, tile.data(), 7);
        return format.fits(tile.data(), dim);
      };
      EXPECT_TRUE(fits(format.largest)) << format.name;
      EXPECT_TRUE(fits(-format.largest));
      EXPECT_FALSE(fits(INFINITY));
      EXPECT_FALSE(fits(1e16F));
    }
  }
}

TEST(Planes, RefusesHeadsThatAreNoMultiple) {
  for (const CacheType type : kFew) {
    CacheOptions o{.geometry = HeadGeometry::uniform(1, 1, 80, 80, type)};
    EXPECT_NE(error_of([&] { Cache cache(o); }).find("multiple of 32 dimensions, not 80"), std::string::npos);
    o.geometry = HeadGeometry::uniform(1, 1, 64, 64, type);
    o.rotated_half = true;
    EXPECT_NE(error_of([&] { Cache cache(o); }).find("has no rotated halves"), std::string::npos);
  }
}

}  // namespace
}  // namespace palimpsest::testing
