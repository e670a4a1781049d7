#include "palimpsest/eval/report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

using nlohmann::json;

json needle(const std::string& method, int budget, int bytes, double score, int length) {
  const json run = {{"name", method},
                    {"budget", budget},
                    {"sinks", 4},
                    {"protected", "4 sinks"},
                    {"cache_bytes", bytes},
                    {"cache_bytes_peak", 2 * bytes},
                    {"questions", 4},
                    {"evicted", 7},
                    {"question_seen", "before"},
                    {"score", score},
                    {"score_low", nullptr},
                    {"score_high", nullptr},
                    {"tpot_ms", 1.5},
                    {"cells", {{{"length", length}, {"depth", 0.5}, {"questions", 4}, {"right", 4 * score}}}}};
  return {{"command", "palimpsest eval needle --method " + method},
          {"version", "1.2.3"},
          {"seconds", 2.0},
          {"result", {{"task", "needle"}, {"kind", "fact"}, {"model", "<m>"}, {"lengths", {length}}, {"runs", {run}}}}};
}

TEST(Report, TablesFiguresAndSources) {
  std::vector<json> lines = {needle("h2o:budget=128", 128, 4096, 0.75, 512),
                             needle("h2o:budget=64", 64, 2048, 0.5, 512), needle("full", 0, 8192, 1, 512),
                             needle("full", 0, 8192, 0.25, 1024)};
  lines.push_back({{"command", "palimpsest eval x"}, {"version", "1.2.3"}, {"error", "no </script> here"}});
  const Report report = make_report(lines);
  ASSERT_EQ(report.tables.size(), 2u);  // one for each length
  ASSERT_EQ(report.tables[0].rows.size(), 3u);
  EXPECT_EQ(report.tables[0].rows[1].method, "h2o:budget=64");  // by family, then bytes
  EXPECT_EQ(report.tables[0].rows[1].sources, std::vector<std::size_t>{1});
  EXPECT_EQ(report.sources.size(), 5u);

  const auto maps = std::ranges::count_if(report.figures, &ReportFigure::small);
  EXPECT_EQ(maps, 3);
  for (const ReportFigure& figure : report.figures)
    if (figure.title.starts_with("full")) {  // both lengths in one map
      EXPECT_EQ(figure.data[0]["x"], json({"512", "1024"}));
      EXPECT_EQ(figure.data[0]["z"], json({{100.0, 25.0}}));
    }
  EXPECT_EQ(report.figures[0].data[1]["x"], json({2.0, 4.0}));
  EXPECT_EQ(report.figures[0].data[1]["y"], json({50.0, 75.0}));

  const std::string markdown = to_markdown(report, "T");
  EXPECT_NE(markdown.find("| h2o:budget=64 | 64 | 4 sinks | 2.0 | 4.0 | 7 | 50.0% | 1.500 | [2](#run-2) |"),
            std::string::npos)
      << markdown;
  EXPECT_NE(markdown.find("<a id=\"run-2\"></a>[2] `palimpsest eval needle --method h2o:budget=64` (version 1.2.3"),
            std::string::npos);
  EXPECT_NE(markdown.find("5 runs, 1 failed"), std::string::npos);

  const std::string html = to_html(report, "T & t", "/*plotly*/");
  EXPECT_NE(html.find("/*plotly*/"), std::string::npos);
  EXPECT_NE(html.find("T &amp; t"), std::string::npos);
  EXPECT_NE(html.find("&lt;m&gt;"), std::string::npos);
  EXPECT_EQ(html.find("<m>"), std::string::npos);
  EXPECT_EQ(html.find("no </script>"), std::string::npos);
  EXPECT_NE(html.find("href=\"#run-2\""), std::string::npos);
  EXPECT_EQ(html.find("src="), std::string::npos);  // no external resources
}

TEST(Report, PutsSeedsTogether) {
  const std::vector<json> lines = {needle("full", 0, 8192, 1, 512), needle("full", 0, 8192, 0.5, 512)};
  const Report report = make_report(lines);
  ASSERT_EQ(report.tables[0].rows.size(), 1u);
  const ReportRow& row = report.tables[0].rows[0];
  EXPECT_DOUBLE_EQ(row.quality, 0.75);
  EXPECT_EQ(row.questions, 8);
  EXPECT_EQ(row.evicted, 14);
  EXPECT_EQ(row.sources, (std::vector<std::size_t>{0, 1}));
}

// A method measured by two commands with equal settings is listed once; differences between methods have intervals.
TEST(Report, PerplexitiesStandWithTheirDifferences) {
  const auto line = [](const std::string& other, double nll) {
    const auto run = [](const std::string& name, double value, double low, double high) {
      return json{{"name", name},
                  {"cache_bytes", 1024},
                  {"nll", value},
                  {"nll_error", 0.1},
                  {"perplexity", std::exp(value)},
                  {"difference", {{"nll", value - 1}, {"low", low}, {"high", high}}}};
    };
    return json{{"command", "eval perplexity " + other},
                {"result",
                 {{"task", "perplexity"},
                  {"model", "m"},
                  {"tokens", 9},
                  {"files", {{{"file", "a/b.txt"}}}},
                  {"runs", {run("full", 1, 0, 0), run(other, nll, nll - 1.25, nll - 0.75)}}}}};
  };
  const std::vector<json> lines = {line("h2o", 1.5), line("tova", 0.75)};
  const Report report = make_report(lines);
  ASSERT_EQ(report.tables.size(), 1u);
  ASSERT_EQ(report.tables[0].rows.size(), 3u);
  EXPECT_EQ(report.tables[0].rows[0].sources, (std::vector<std::size_t>{0, 1}));
  const std::string markdown = to_markdown(report, "T");
  EXPECT_NE(markdown.find("difference to the first, nats (95%)"), std::string::npos) << markdown;
  EXPECT_NE(markdown.find("+0.5000 [+0.2500, +0.7500] | [1](#run-1) |"), std::string::npos) << markdown;
  EXPECT_NE(markdown.find("-0.2500 [-0.5000, +0.0000] | [2](#run-2) |"), std::string::npos) << markdown;
}

TEST(Report, RefusesWhatItCannotReportOn) {
  EXPECT_NE(error_of([] { make_report({}); }).find("empty"), std::string::npos);
  const std::vector<json> bad = {{{"result", {{"task", "needle"}, {"runs", {{{"name", "x"}}}}}}}};
  EXPECT_NE(error_of([&] { make_report(bad); }).find("line 1"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
