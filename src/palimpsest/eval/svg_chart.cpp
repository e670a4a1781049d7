#include "palimpsest/eval/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/markup.h"
#include "palimpsest/eval/svg_scale.h"

namespace palimpsest {
namespace {

// Colours distinguishable by colour-blind readers and in grey (Okabe and Ito, 2008), darkest first.
constexpr std::array<const char*, 7> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#e69f00", "#56b4e9", "#000000"};
constexpr double kLeft = 72, kRight = 32, kLegendRow = 20;

// Approximate width of text in 12 px sans-serif, for the layout of the legend.
double text_width(const std::string& text) {
  return 6.6 * static_cast<double>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

struct Range {
  double min = HUGE_VAL, max = -HUGE_VAL;
  void add(double value) {
    min = std::min(min, value);
    max = std::max(max, value);
  }
};

struct LegendEntry {
  double x;
  int row;
};

// Entries run from left to right and wrap.
std::vector<LegendEntry> layout_legend(const ChartPanel& panel, double width) {
  std::vector<LegendEntry> entries;
  double x = 0;
  int row = 0;
  for (const auto& series : panel.series) {
    const double need = 30 + text_width(series.name) + 22;
    if (x > 0 && x + need > width) {
      x = 0;
      ++row;
    }
    entries.push_back({x, row});
    x += need;
  }
  return entries;
}

class PanelWriter {
 public:
  PanelWriter(const ChartPanel& panel, double width, double top, std::string& out)
      : panel_(panel),
        out_(out),
        x_scale_(scale(true)),
        y_scale_(scale(false)),
        legend_(layout_legend(panel, width - kLeft - kRight)),
        left_(kLeft),
        right_(width - kRight) {
    top_ = top + (panel.title.empty() ? 0 : 22) + kLegendRow * (legend_.back().row + 1) + 8;
    bottom_ = top_ + panel.height;
    x_scale_.set_pixels(left_, right_);
    y_scale_.set_pixels(bottom_, top_);
    write_legend(top);
    write_axes();
    write_marks();
    for (std::size_t i = 0; i < panel.series.size(); ++i) write_line(i);
  }
  double end() const { return bottom_ + 52; }

 private:
  AxisScale scale(bool x) const {
    Range range;
    const bool log = x ? panel_.log_x : panel_.log_y;
    for (const auto& series : panel_.series)
      for (const auto& [px, py] : series.points)
        if (std::isfinite(px) && std::isfinite(py)) range.add(x ? px : py);
    if (range.min > range.max) fail("chart '{}': no point to show", panel_.title);
    if (log && range.min <= 0) fail("chart '{}': a logarithmic axis cannot show {}", panel_.title, range.min);
    return {range.min, range.max, log, !x && panel_.from_zero, x ? 0.0 : 0.06};
  }

  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  static const char* colour(std::size_t i) { return kColours[i % kColours.size()]; }
  const char* dash(std::size_t i) const {  // past the last colour, colours repeat dashed
    return panel_.series[i].dashed || i >= kColours.size() ? R"( stroke-dasharray="6 4")" : "";
  }

  void write_legend(double top) {
    double y = top;
    if (!panel_.title.empty()) {
      put(R"(<text x="{:.1f}" y="{:.1f}" class="panel">{}</text>)", left_, y + 14, escape_markup(panel_.title));
      y += 22;
    }
    for (std::size_t i = 0; i < legend_.size(); ++i) {
      const double x = left_ + legend_[i].x, row = y + kLegendRow * legend_[i].row + 10;
      put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" stroke-width="2.5"{}/>)", x, row, x + 22,
          row, colour(i), dash(i));
      put(R"(<text x="{:.1f}" y="{:.1f}">{}</text>)", x + 30, row + 4, escape_markup(panel_.series[i].name));
    }
  }

  void write_axes() {
    for (const double tick : y_scale_.ticks()) {
      const double y = y_scale_.pixel(tick);
      put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="grid"/>)", left_, y, right_, y);
      put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>)", left_ - 8, y + 4, y_scale_.label(tick));
    }
    for (const double tick : x_scale_.ticks()) {
      const double x = x_scale_.pixel(tick);
      put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="axis"/>)", x, bottom_, x, bottom_ + 5);
      put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", x, bottom_ + 19, x_scale_.label(tick));
    }
    put(R"(<path d="M{:.1f} {:.1f}V{:.1f}H{:.1f}" class="axis" fill="none"/>)", left_, top_, bottom_, right_);
    put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", (left_ + right_) / 2, bottom_ + 38,
        escape_markup(panel_.x_label));
    const double middle = (top_ + bottom_) / 2;
    put(R"x(<text transform="translate(18 {:.1f}) rotate(-90)" text-anchor="middle">{}</text>)x", middle,
        escape_markup(panel_.y_label));
  }

  void write_marks() {
    for (const auto& mark : panel_.marks) {
      const double x = x_scale_.pixel(mark.x);
      if (!(x >= left_ && x <= right_)) continue;
      put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="mark"/>)", x, top_, x, bottom_);
      const bool flip = x + 8 + text_width(mark.label) > right_;
      put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" class="note">{}</text>)", flip ? x - 6 : x + 6, top_ + 12,
          flip ? "end" : "start", escape_markup(mark.label));
    }
  }

  void write_line(std::size_t i) {
    std::string path;
    bool pen_down = false;
    for (const auto& [px, py] : panel_.series[i].points) {
      const double x = x_scale_.pixel(px), y = y_scale_.pixel(py);
      if (!std::isfinite(x) || !std::isfinite(y)) {
        pen_down = false;
        continue;
      }
      fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", pen_down ? "L" : "M", x, y);
      pen_down = true;
    }
    put(R"(<path d="{}" fill="none" stroke="{}" stroke-width="1.8" stroke-linejoin="round" stroke-linecap="round"{}/>)",
        path, colour(i), dash(i));
  }

  const ChartPanel& panel_;
  std::string& out_;
  AxisScale x_scale_, y_scale_;
  std::vector<LegendEntry> legend_;
  double left_, right_, top_ = 0, bottom_ = 0;
};

}  // namespace

std::string to_svg(const Chart& chart) {
  std::string body;
  double y = 20;
  if (!chart.title.empty()) {
    body += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"title\">{}</text>\n", kLeft, y + 10,
                        escape_markup(chart.title));
    y += 26;
  }
  if (!chart.subtitle.empty()) {
    body += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"note\">{}</text>\n", kLeft, y + 6,
                        escape_markup(chart.subtitle));
    y += 24;
  }
  if (chart.panels.empty()) fail("chart '{}': no panel", chart.title);
  for (const auto& panel : chart.panels) {
    if (panel.series.empty()) fail("chart '{}': no line to show", panel.title);
    y = PanelWriter(panel, chart.width, y, body).end() + 10;
  }
  return fmt::format(
             R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1:.0f}" viewBox="0 0 {0} {1:.0f}" role="img">
<title>{2}</title>
<style>text{{font:12px system-ui,"DejaVu Sans",Helvetica,Arial,sans-serif;fill:#333}}.title{{font-size:16px;font-weight:600;fill:#111}}.panel{{font-size:13px;font-weight:600;fill:#111}}.note{{fill:#666}}.grid{{stroke:#e4e4e4}}.axis{{stroke:#888}}.mark{{stroke:#999;stroke-dasharray:3 3}}</style>
<rect width="100%" height="100%" fill="#fff"/>
)",
             chart.width, y, escape_markup(chart.title)) +
         body + "</svg>\n";
}

void check_svg_path(const std::string& path) {
  if (!std::ofstream(path, std::ios::binary | std::ios::app)) fail("{}: the plot cannot be written there", path);
}

void write_svg(const std::string& path, const Chart& chart) {
  const std::string text = to_svg(chart);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) fail("{}: the plot cannot be written there", path);
}

}  // namespace palimpsest
