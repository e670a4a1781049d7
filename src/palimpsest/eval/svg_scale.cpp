#include "palimpsest/eval/svg_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace palimpsest {
namespace {

// 12345678 -> "12,345,678"
std::string grouped(double whole) {
  std::string digits = fmt::format("{:.0f}", std::abs(whole));
  for (auto at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<std::size_t>(at), ",");
  return whole < 0 ? "-" + digits : digits;
}

}  // namespace

AxisScale::AxisScale(double min, double max, bool logarithmic, bool from_zero, double margin)
    : log_(logarithmic), min_(min), max_(max) {
  if (log_) {
    const double span = std::max(max_ / min_, 1.05);
    const double pad = std::pow(span, margin);
    min_ /= pad;
    max_ = min * span * pad;
    choose_log_ticks();
    return;
  }
  if (from_zero) min_ = std::min(0.0, min_);
  if (max_ - min_ <= std::abs(max_) * 1e-9) {  // center a flat line
    const double pad = std::max(std::abs(max_) * 0.05, 1e-9);
    if (!from_zero || min_ < 0) min_ -= pad;
    max_ += pad;
  }
  const double pad = (max_ - min_) * margin;
  if (!from_zero) min_ -= pad;
  max_ += pad;
  choose_linear_ticks();
}

void AxisScale::set_pixels(double first_pixel, double last_pixel) {
  first_ = first_pixel;
  last_ = last_pixel;
}

double AxisScale::transform(double value) const {
  return log_ ? std::log10(value) : value;
}

double AxisScale::pixel(double value) const {
  const double low = transform(min_), high = transform(max_);
  return first_ + (transform(value) - low) / (high - low) * (last_ - first_);
}

// About six ticks at 1, 2 or 5 times a power of ten.
void AxisScale::choose_linear_ticks() {
  const double rough = (max_ - min_) / 6;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double lead = rough / power;
  step_ = power * (lead <= 1.5 ? 1 : lead <= 3.5 ? 2 : lead <= 7.5 ? 5 : 10);
  const double slack = (max_ - min_) * 1e-9;
  for (double k = std::ceil((min_ - slack) / step_); k * step_ <= max_ + slack; k += 1)
    ticks_.push_back(k == 0 ? 0 : k * step_);
}

// One tick per decade; below three decades also at 2 and 5 times; narrower ranges get linear ticks.
void AxisScale::choose_log_ticks() {
  const double decades = std::log10(max_ / min_);
  for (double power = std::floor(std::log10(min_)); power <= std::log10(max_); power += 1)
    for (const double lead : {1.0, 2.0, 5.0}) {
      const double tick = lead * std::pow(10.0, power);
      if ((lead == 1.0 || decades < 3) && tick >= min_ && tick <= max_) ticks_.push_back(tick);
    }
  if (ticks_.size() >= 3) return;
  ticks_.clear();
  choose_linear_ticks();
}

std::string AxisScale::label(double tick) const {
  const double size = std::abs(tick);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) return fmt::format("{:.3g}", tick);
  if (step_ == 0) return size >= 1 ? grouped(tick) : fmt::format("{:g}", tick);
  if (step_ >= 1) return grouped(tick);
  return fmt::format("{:.{}f}", tick, static_cast<int>(std::ceil(-std::log10(step_) - 1e-9)));
}

}  // namespace palimpsest
