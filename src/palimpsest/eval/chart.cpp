#include "palimpsest/eval/chart.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

using nlohmann::ordered_json;

ordered_json as_json(const ChartPanel& panel) {
  ordered_json series = ordered_json::object(), marks = ordered_json::array();
  for (const ChartSeries& each : panel.series) {
    ordered_json points = ordered_json::array();
    for (const auto& [x, y] : each.points)
      points.push_back({x, std::isfinite(y) ? ordered_json(y) : ordered_json(nullptr)});
    series[(each.dashed ? "(" : "") + each.name] = std::move(points);
  }
  for (const ChartMark& mark : panel.marks) marks.push_back({mark.x, mark.label});
  return {{"title", panel.title},        {"x_label", panel.x_label},  {"y_label", panel.y_label},
          {"series", std::move(series)}, {"log_y", panel.log_y},      {"from_zero", panel.from_zero},
          {"lines_only", true},          {"marks", std::move(marks)}, {"kind", "lines"}};
}

}  // namespace

void check_chart_path(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  for (const char* picture : {".svg", ".png", ".pdf"})
    if (extension == picture)
      fail("{}: the plot's data are written as JSON; bench/plot.py FILE.json -o {} draws them", path,
           std::filesystem::path(path).filename().string());
  if (!std::ofstream(path, std::ios::binary | std::ios::app)) fail("{}: the plot cannot be written there", path);
}

void write_chart(const std::string& path, const Chart& chart) {
  ordered_json panels = ordered_json::array();
  for (const ChartPanel& panel : chart.panels) panels.push_back(as_json(panel));
  const ordered_json all = {{"title", chart.title + (chart.subtitle.empty() ? "" : "; " + chart.subtitle)},
                            {"columns", 1},
                            {"panels", std::move(panels)}};
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << all.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
  file.close();
  if (!file) fail("{}: the plot cannot be written there", path);
}

}  // namespace palimpsest
