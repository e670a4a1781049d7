#include "palimpsest/model/placement.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "palimpsest/model/model.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

using Devices = std::vector<int>;
using Sizes = std::vector<std::size_t>;
using Shares = std::vector<double>;

TEST(Placement, LayersFollowTheSharesInOrder) {
  const Sizes equal(8, 100);
  EXPECT_EQ(place_layers(equal, Shares{1}), Devices(8, 0));
  EXPECT_EQ(place_layers(equal, Shares{1, 1}), (Devices{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(place_layers(equal, Shares{3, 1}), (Devices{0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(place_layers(equal, Shares{24e9, 8e9}), (Devices{0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(place_layers(equal, Shares{1, 2, 1}), (Devices{0, 0, 1, 1, 1, 1, 2, 2}));
}

TEST(Placement, BytesCountNotLayers) {
  EXPECT_EQ(place_layers(Sizes{400, 100, 100, 100, 100}, Shares{1, 1}), (Devices{0, 1, 1, 1, 1}));
  EXPECT_EQ(place_layers(Sizes{10, 10, 10, 10, 1000}, Shares{1, 1}), (Devices{0, 0, 0, 0, 1}));  // a large output
}

TEST(Placement, DevicesWithoutAShareHaveNoLayers) {
  const Sizes equal(4, 100);
  EXPECT_EQ(place_layers(equal, Shares{0, 1}), Devices(4, 1));
  EXPECT_EQ(place_layers(equal, Shares{1, 0}), Devices(4, 0));
  EXPECT_EQ(place_layers(equal, Shares{1, 0, 1}), (Devices{0, 0, 2, 2}));
  EXPECT_EQ(place_layers(Sizes{100}, Shares{1, 1, 1}), Devices{1});
  EXPECT_EQ(place_layers(Sizes{0, 0}, Shares{1, 1}).size(), 2U);
}

TEST(Placement, BadDevicesAreRefused) {
  const auto error = [](const ModelOptions& options) { return error_of([&] { Model::synthetic("tiny", options); }); };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(error({.device = "cpu,abacus"}), "\"abacus\"; there are: ");
  has(error({.device = "cpu,"}), "no device is called \"\"");
  has(error({.device = "cpu,cpu"}), "cpu is named twice");
  has(error({.tensor_split = {1, 2}}), "2 numbers for 1 devices (cpu)");
  has(error({.tensor_split = {0}}), "not all 0");
  has(error({.tensor_split = {-1}}), "none negative");
}

}  // namespace
}  // namespace palimpsest::testing
