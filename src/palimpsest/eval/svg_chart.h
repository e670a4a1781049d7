// Line charts as SVG text: panels under one another, each with axes, grid, legend and lines. Nothing else is needed to
// look at them than a browser, and nothing but the standard library to make them.
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

struct ChartMark {  // a vertical line at a place worth naming
  double x = 0;
  std::string label;
};

struct ChartPanel {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;  // then every value on that axis must be above 0
  bool from_zero = false;             // the y axis begins at 0 (linear axes only)
  std::vector<ChartSeries> series;
  std::vector<ChartMark> marks;
  int height = 300;  // pixels of the plot itself
};

struct Chart {
  std::string title, subtitle;
  std::vector<ChartPanel> panels;
  int width = 880;
};

// Throws Error on a panel without a point and on values that a logarithmic axis cannot show.
std::string to_svg(const Chart& chart);
void write_svg(const std::string& path, const Chart& chart);  // throws Error when the file cannot be written
// Throws that Error now, before a long measurement is made for nothing. May leave an empty file.
void check_svg_path(const std::string& path);

}  // namespace palimpsest
