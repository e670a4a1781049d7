// One axis of a chart: maps values to pixels and chooses ticks.
#pragma once

#include <string>
#include <vector>

namespace palimpsest {

class AxisScale {
 public:
  // Covers [min, max] with a margin (none at the 0 of `from_zero`).
  AxisScale(double min, double max, bool logarithmic, bool from_zero, double margin);
  void set_pixels(double first_pixel, double last_pixel);  // on y axes first > last

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
  double step_ = 0;  // between linear ticks; sets the number of decimals of labels
  std::vector<double> ticks_;
};

}  // namespace palimpsest
