#include "palimpsest/eval/svg_chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/svg_scale.h"

namespace palimpsest::testing {
namespace {

// A small check for well-formed XML: tags nest and close, attributes are quoted, & only starts XML's entities, no
// control characters. Returns the fault; empty: none.
std::string xml_fault(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t i = 0; i < xml.size();) {
    const char c = xml[i];
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n') return "control character";
    if (c == '&') {
      const std::size_t end = xml.find(';', i);
      if (end == std::string::npos) return "& without ;";
      const std::string name = xml.substr(i + 1, end - i - 1);
      if (name != "amp" && name != "lt" && name != "gt" && name != "quot" && name != "#39") return "entity " + name;
      i = end + 1;
    } else if (c == '<') {
      const bool closing = xml[i + 1] == '/';
      std::size_t at = i + (closing ? 2 : 1);
      std::string name;
      while (at < xml.size() && (std::isalnum(static_cast<unsigned char>(xml[at])) != 0)) name += xml[at++];
      if (name.empty()) return "< without a name";
      char quote = 0;
      for (; at < xml.size() && (quote != 0 || xml[at] != '>'); ++at) {
        if (xml[at] == '<') return "< inside a tag";
        if (quote != 0 ? xml[at] == quote : xml[at] == '"') quote = quote != 0 ? 0 : xml[at];
      }
      if (at == xml.size()) return "tag " + name + " does not end";
      if (closing) {
        if (open.empty() || open.back() != name) return "</" + name + "> closes nothing";
        open.pop_back();
      } else if (xml[at - 1] != '/') {
        open.push_back(name);
      }
      i = at + 1;
    } else {
      if (open.empty() && c != '\n') return "text outside the root";
      ++i;
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> stays open";
}

Chart sample() {
  ChartPanel panel{
      .title = "a < b & \"c\"", .x_label = "token", .y_label = "perplexity", .log_y = true, .series = {}, .marks = {}};
  panel.series.push_back({"full <&>", {{0, 4}, {100, 5}, {200, 800}}, false});
  panel.series.push_back({"gap\x01", {{0, 4}, {100, std::nan("")}, {200, 4.5}}, true});
  panel.marks.push_back({128, "trained context"});
  return {.title = "It's a chart", .subtitle = "with 'quotes'", .panels = {panel, panel}};
}

int count(const std::string& text, const std::string& what) {
  int n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(SvgChart, TheCheckSeesFaults) {
  EXPECT_EQ(xml_fault("<a><b x=\"1\"/>t</a>"), "");
  for (const char* bad : {"<a>", "<a></b>", "<a>&x;</a>", "<a x=\"></a>", "<a> < </a>", "<a>\x01</a>", "t<a/>"})
    EXPECT_NE(xml_fault(bad), "") << bad;
}

TEST(SvgChart, IsWellFormedWhateverTheText) {
  EXPECT_EQ(xml_fault(to_svg(sample())), "");
}

TEST(SvgChart, ShowsEverySeriesAndBreaksALineAtAHole) {
  const std::string svg = to_svg(sample());
  EXPECT_EQ(count(svg, "full &lt;&amp;&gt;"), 2);
  EXPECT_EQ(count(svg, "stroke-linejoin"), 4);
  const auto last = svg.rfind("<path");
  EXPECT_EQ(count(svg.substr(last, svg.find("fill", last) - last), "M"), 2);  // the pen was lifted once
  EXPECT_EQ(count(svg, "trained context"), 2);
}

TEST(SvgChart, RefusesWhatItCannotShow) {
  Chart chart = sample();
  chart.panels[0].series[0].points[0].second = 0;
  EXPECT_THROW(to_svg(chart), Error);
  EXPECT_THROW(to_svg({.title = "none", .subtitle = "", .panels = {}}), Error);
  EXPECT_THROW(to_svg({.title = "", .subtitle = "", .panels = {ChartPanel{}}}), Error);
  EXPECT_THROW(write_svg("/nowhere/at/all.svg", sample()), Error);
}

TEST(AxisScale, TicksAreRoundAndInside) {
  AxisScale linear(0, 100000, false, false, 0);
  EXPECT_EQ(linear.ticks(), (std::vector<double>{0, 20000, 40000, 60000, 80000, 100000}));
  EXPECT_EQ(linear.label(20000), "20,000");
  AxisScale fine(1.61, 1.69, false, false, 0);
  EXPECT_EQ(fine.label(fine.ticks().front()), "1.61");
  AxisScale log(4, 400, true, false, 0);
  EXPECT_EQ(log.ticks().size(), 6u);  // 5 10 20 50 100 200
  EXPECT_NEAR(log.ticks().front(), 5, 1e-9);
  AxisScale narrow(4, 6, true, false, 0);
  EXPECT_GE(narrow.ticks().size(), 3u);
  AxisScale flat(7, 7, false, false, 0);
  flat.set_pixels(0, 10);
  EXPECT_NEAR(flat.pixel(7), 5, 1e-6);
}

TEST(AxisScale, MapsValuesToPixels) {
  AxisScale log(1, 100, true, false, 0);
  log.set_pixels(100, 0);
  EXPECT_NEAR(log.pixel(10), 50, 1e-9);
}

}  // namespace
}  // namespace palimpsest::testing
