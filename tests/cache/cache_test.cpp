// Random operations on Cache and on the naive model, compared after each.
#include "palimpsest/cache/cache.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/cache/pair.h"
#include "tests/cache/two_layers.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

const int kOperations = test_length(4000, 9000, 600), kOfMixedTypes = test_length(700, 1500, 250);

struct Variant {
  Mechanism mechanism;
  bool shared, pages;
  int page_size;
  CacheType type;
  std::optional<CacheType> value_type = {};  // if it differs from the keys'
  int operations = kOperations;
  std::vector<std::int32_t> windows = {};
  int evicted_page = 0;
  bool two_widths = false;
};

const char* label(CacheType type) {
  return kv_format(type).name;
}

std::string name_of(const ::testing::TestParamInfo<Variant>& info) {
  const Variant& v = info.param;
  return std::string(v.mechanism == Mechanism::kShift    ? "Shift"
                     : v.mechanism == Mechanism::kGather ? "Gather"
                     : v.mechanism == Mechanism::kBlock  ? "Block"
                     : v.mechanism == Mechanism::kAppend ? "Append"
                     : v.mechanism == Mechanism::kMerge  ? "Merge"
                                                         : "InPlace") +
         (v.shared ? "Shared" : "PerHead") + (v.pages ? "" : "NoPages") + "Page" + std::to_string(v.page_size) +
         label(v.type) + (v.value_type ? std::string("With") + label(*v.value_type) : "") +
         (v.two_widths ? "TwoWidths" : "") + (v.windows.empty() ? "" : "Windows") +
         (v.evicted_page > 0 ? "Evicted" + std::to_string(v.evicted_page) : "");
}

CacheOptions options_of(const Variant& v) {
  const CacheType values = v.value_type.value_or(v.type);
  const Widths widths = {kv_format(v.type).elementwise() ? 3 : 64, kv_format(values).elementwise() ? 5 : 32};
  return {.geometry = two_layers(widths, v.two_widths ? Widths{2 * widths.key, 2 * widths.value} : widths)
                          .with_types(v.type, values),
          .page_size = v.page_size,
          .evicted_page = v.evicted_page,
          .mechanism = v.mechanism,
          .shared = v.shared,
          .track_rank = true,
          .columns = 2,
          .pages = v.pages,
          .windows = v.windows};
}

class CacheAgainstNaive : public ::testing::TestWithParam<Variant> {};

TEST_P(CacheAgainstNaive, RandomOperations) {
  Pair pair(options_of(GetParam()), 1);
  for (int i = 0; i < GetParam().operations && !HasFatalFailure(); ++i) {
    SCOPED_TRACE("operation " + std::to_string(i));
    pair.step();
  }
  EXPECT_GT(pair.cache().evicted(), GetParam().operations / 9);
}

// Heads with equal windows share a table. The test drops tokens outside the window; the cache itself does not.
const std::vector<std::int32_t> kWindows = {INT32_MAX - 1, INT32_MAX, INT32_MAX - 2, INT32_MAX - 1};
constexpr auto kIn = Mechanism::kInPlace;
constexpr auto kSh = Mechanism::kShift;
constexpr auto kGa = Mechanism::kGather;
constexpr auto kBl = Mechanism::kBlock;
constexpr auto kAp = Mechanism::kAppend;
constexpr auto kMe = Mechanism::kMerge;
INSTANTIATE_TEST_SUITE_P(
    Variants, CacheAgainstNaive,
    ::testing::Values(Variant{kIn, true, true, 16, CacheType::kF16}, Variant{kIn, true, true, 64, CacheType::kF32},
                      Variant{kIn, true, true, 16, CacheType::kF16, {}, kOperations, kWindows},
                      Variant{kIn, true, false, 32, CacheType::kF16, {}, kOperations, kWindows},
                      Variant{kIn, false, true, 16, CacheType::kF32, {}, kOperations, kWindows},
                      Variant{kSh, true, true, 16, CacheType::kF16, {}, kOperations, kWindows},
                      Variant{kGa, true, true, 32, CacheType::kF32, {}, kOperations, kWindows},
                      Variant{kBl, true, true, 16, CacheType::kF16, {}, kOperations, kWindows},
                      Variant{kAp, true, true, 16, CacheType::kF16, {}, kOperations, kWindows},
                      Variant{kIn, true, false, 32, CacheType::kF16}, Variant{kIn, true, true, 256, CacheType::kBF16},
                      Variant{kIn, false, true, 16, CacheType::kF32}, Variant{kIn, false, true, 48, CacheType::kF16},
                      Variant{kIn, false, false, 16, CacheType::kF16}, Variant{kSh, true, true, 16, CacheType::kF16},
                      Variant{kSh, true, true, 64, CacheType::kF32}, Variant{kSh, true, false, 16, CacheType::kF16},
                      Variant{kSh, false, true, 16, CacheType::kBF16}, Variant{kSh, false, true, 32, CacheType::kF32},
                      Variant{kGa, true, true, 16, CacheType::kF16}, Variant{kGa, false, true, 32, CacheType::kBF16},
                      Variant{kGa, false, true, 64, CacheType::kF32}, Variant{kGa, false, false, 16, CacheType::kF16},
                      Variant{kBl, true, true, 16, CacheType::kF16}, Variant{kBl, false, true, 16, CacheType::kF32},
                      Variant{kBl, false, true, 16, CacheType::kF32, {}, kOperations, {}, 8},
                      Variant{kBl, true, true, 64, CacheType::kF16, {}, kOperations, {}, 8},
                      Variant{kBl, false, true, 48, CacheType::kF16, {}, kOperations, {}, 24},
                      Variant{kBl, true, true, 32, CacheType::kF16, {}, kOperations, kWindows, 16},
                      Variant{kBl, false, true, 32, CacheType::kBF16}, Variant{kBl, false, false, 16, CacheType::kF16},
                      Variant{kAp, true, true, 16, CacheType::kF16}, Variant{kAp, false, true, 16, CacheType::kF32},
                      Variant{kAp, false, true, 48, CacheType::kF16}, Variant{kAp, true, false, 32, CacheType::kF16},
                      Variant{kMe, false, true, 16, CacheType::kF16}, Variant{kMe, false, true, 48, CacheType::kF32},
                      Variant{kMe, false, true, 16, CacheType::kQ8_0}, Variant{kMe, false, true, 32, CacheType::kBF16},
                      Variant{kIn, true, true, 16, CacheType::kQ8_0}, Variant{kIn, false, true, 32, CacheType::kQ8_0},
                      Variant{kSh, true, true, 32, CacheType::kQ8_0}, Variant{kSh, false, true, 16, CacheType::kQ8_0},
                      Variant{kGa, false, true, 16, CacheType::kQ8_0}, Variant{kBl, true, true, 16, CacheType::kQ8_0},
                      Variant{kAp, false, true, 16, CacheType::kQ8_0}, Variant{kSh, false, true, 16, CacheType::kF16},
                      Variant{kMe, false, true, 16, CacheType::kQ4}, Variant{kIn, true, true, 16, CacheType::kQ4},
                      Variant{kSh, true, true, 32, CacheType::kQ4}, Variant{kGa, false, true, 16, CacheType::kQ4_0},
                      Variant{kBl, true, true, 16, CacheType::kQ4}, Variant{kAp, false, true, 16, CacheType::kQ4},
                      Variant{kMe, false, true, 16, CacheType::kQ3}, Variant{kIn, true, true, 16, CacheType::kQ3},
                      Variant{kSh, true, true, 32, CacheType::kQ3}, Variant{kGa, false, true, 16, CacheType::kQ3},
                      Variant{kBl, true, true, 16, CacheType::kQ2}, Variant{kAp, false, true, 16, CacheType::kQ2},
                      Variant{kIn, false, true, 32, CacheType::kQ2}, Variant{kSh, false, true, 16, CacheType::kQ2},
                      Variant{kBl, false, true, 16, CacheType::kF16}),
    name_of);

// Layers whose heads differ in width, with each mechanism.
std::vector<Variant> two_widths() {
  std::vector<Variant> out;
  for (const auto mechanism : {kIn, kSh, kGa, kBl, kAp, kMe})
    for (const bool shared : {true, false})
      if (mechanism != kMe || !shared)
        out.push_back({.mechanism = mechanism,
                       .shared = shared,
                       .pages = true,
                       .page_size = out.size() % 2 == 0 ? 16 : 32,
                       .type = out.size() % 3 == 0 ? CacheType::kQ8_0 : CacheType::kF16,
                       .windows = shared ? kWindows : std::vector<std::int32_t>{},
                       .two_widths = true});
  return out;
}
INSTANTIATE_TEST_SUITE_P(TwoWidths, CacheAgainstNaive, ::testing::ValuesIn(two_widths()), name_of);

// All pairs of key and value types, with each mechanism.
std::vector<Variant> mixed_types() {
  constexpr auto& kTypes = kCacheTypes;
  std::vector<Variant> out;
  for (const auto mechanism : {kIn, kSh, kGa, kBl, kAp, kMe})
    for (const CacheType keys : kTypes)
      for (const CacheType values : kTypes)
        if (keys != values)
          out.push_back({mechanism, out.size() % 2 == 0 && mechanism != kMe, true, out.size() % 3 == 0 ? 48 : 16, keys,
                         values, kOfMixedTypes});
  return out;
}
INSTANTIATE_TEST_SUITE_P(MixedTypes, CacheAgainstNaive, ::testing::ValuesIn(mixed_types()), name_of);

}  // namespace
}  // namespace palimpsest::testing
