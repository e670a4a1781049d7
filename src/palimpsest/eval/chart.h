// The data of line charts, written as JSON; bench/plot.py draws them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace palimpsest {

struct ChartSeries {
  std::string name;                               // in the legend
  std::vector<std::pair<double, double>> points;  // by x; a value that is not finite interrupts the line
  bool dashed = false;
};

struct ChartMark {  // a labelled vertical line
  double x = 0;
  std::string label;
};

struct ChartPanel {
  std::string title, x_label, y_label;
  bool log_y = false;
  bool from_zero = false;  // the y axis begins at 0 (linear axes only)
  std::vector<ChartSeries> series;
  std::vector<ChartMark> marks;
};

struct Chart {
  std::string title, subtitle;
  std::vector<ChartPanel> panels;
};

void write_chart(const std::string& path, const Chart& chart);  // throws Error when the file cannot be written
// Throws Error before a long measurement: the file cannot be written, or its name is that of a picture. May create an
// empty file.
void check_chart_path(const std::string& path);

}  // namespace palimpsest
