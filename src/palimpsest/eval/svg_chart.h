// Line charts as SVG text: panels below one another, each with axes, grid, legend and lines. Uses only the standard
// library.
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
  bool log_x = false, log_y = false;  // all values on a logarithmic axis must be above 0
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

// Throws Error for a panel without points and for values that a logarithmic axis cannot show.
std::string to_svg(const Chart& chart);
void write_svg(const std::string& path, const Chart& chart);  // throws Error when the file cannot be written
// Throws the same Error before a long measurement. May create an empty file.
void check_svg_path(const std::string& path);

}  // namespace palimpsest
