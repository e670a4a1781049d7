// One axis of a chart: from values to pixels, and where the ticks go.
#pragma once

#include <string>
#include <vector>

namespace palimpsest {

class AxisScale {
 public:
  // Covers [least, most] with a small margin (none on the side that `from_zero` pins).
  AxisScale(double min, double max, bool logarithmic, bool from_zero, double margin);
  void place(double first_pixel, double last_pixel);  // y axes run from the bottom up: first > last

  double pixel(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }
  std::string label(double tick) const;

 private:
  double transform(double value) const;
  void choose_linear_ticks();
  void choose_log_ticks();

  bool log_;
  double min_, max_;  // as shown, not transformed
  double first_ = 0, last_ = 1;
  double step_ = 0;  // between linear ticks: tells how many decimals a label needs
  std::vector<double> ticks_;
};

}  // namespace palimpsest
