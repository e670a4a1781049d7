#include "palimpsest/eval/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "palimpsest/core/error.h"
#include "tests/support/file_content.h"

namespace palimpsest::testing {
namespace {

Chart sample() {
  ChartPanel panel{
      .title = "a < b & \"c\"", .x_label = "token", .y_label = "perplexity", .log_y = true, .series = {}, .marks = {}};
  panel.series.push_back({"full", {{0, 4}, {100, 5}, {200, 800}}, false});
  panel.series.push_back({"gap\x01\xff", {{0, 4}, {100, std::nan("")}, {200, 4.5}}, true});
  panel.marks.push_back({128, "trained context"});
  return {.title = "It's a chart", .subtitle = "with 'quotes'", .panels = {panel, panel}};
}

TEST(Chart, IsJsonThatThePlotterReads) {
  const std::string path = ::testing::TempDir() + "chart.json";
  check_chart_path(path);
  write_chart(path, sample());
  const auto data = nlohmann::ordered_json::parse(file_content(path));
  std::filesystem::remove(path);
  EXPECT_EQ(data["title"], "It's a chart; with 'quotes'");
  ASSERT_EQ(data["panels"].size(), 2u);
  const auto& panel = data["panels"][0];
  EXPECT_EQ(panel["kind"], "lines");
  EXPECT_EQ(panel["series"]["full"], nlohmann::json::parse("[[0.0, 4.0], [100.0, 5.0], [200.0, 800.0]]"));
  const auto gap = std::next(panel["series"].begin());
  EXPECT_TRUE(gap.key().starts_with("(gap"));  // dashed
  EXPECT_TRUE(gap.value()[1][1].is_null());
  EXPECT_EQ(panel["marks"][0][1], "trained context");
}

TEST(Chart, RefusesAFileThatCannotBeWrittenAndAPicture) {
  EXPECT_THROW(write_chart("/nowhere/at/all.json", sample()), Error);
  EXPECT_THROW(check_chart_path("/nowhere/at/all.json"), Error);
  try {
    check_chart_path("load.svg");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("bench/plot.py FILE.json -o load.svg"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace palimpsest::testing
