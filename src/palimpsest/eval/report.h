// Tables and figures from a file of results. Each number refers to the command and version that produced it.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

struct ReportRow {
  std::string method, family;                       // "h2o:budget=64", "h2o"
  std::size_t bytes = 0, peak = 0;                  // of the cache at the end and at its peak, tables included
  double quality = 0, low = 0, high = 0, tpot = 0;  // NaN: unknown
  double difference = 0, difference_low = 0,
         difference_high = 0;  // perplexity only: nats per token from the run's first method; else NaN
  long long evicted = 0, budget = 0;
  std::string protection;
  long long questions = 0;           // number of questions: the weight when rows of one method are merged
  std::vector<std::size_t> sources;  // line numbers in the results
};

struct ReportTable {  // one task: its rows are comparable
  std::string title, unit;
  bool percent = false;  // true: fractions, higher is better; false: plain numbers, lower is better
  std::vector<ReportRow> rows;
};

struct ReportFigure {  // a Plotly figure
  std::string title;
  nlohmann::json data, layout;
  bool small = false;  // several are placed side by side
};

struct ReportSource {
  std::string command, version, started, error, warning;
  double seconds = 0;
};

struct Report {
  std::vector<ReportTable> tables;
  std::vector<ReportFigure> figures;
  std::vector<ReportSource> sources;  // of every line, failed ones included
};

// Throws Error if there are no results.
Report make_report(std::span<const nlohmann::json> lines);

std::string to_markdown(const Report& report, const std::string& title);
// A self-contained page: `plotly` is the text of plotly.min.js.
std::string to_html(const Report& report, const std::string& title, std::string_view plotly);

}  // namespace palimpsest
