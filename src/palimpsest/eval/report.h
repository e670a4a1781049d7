// What a file of results says: tables and figures, each number with the command and version that it comes from.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

struct ReportRow {
  std::string method, family;                       // "h2o:budget=64", "h2o"
  std::size_t bytes = 0, peak = 0;                  // of the cache at the end and at its fullest, tables included
  double quality = 0, low = 0, high = 0, tpot = 0;  // NaN: not known
  double difference = 0, difference_low = 0,
         difference_high = 0;  // nats a token from the run's first method, of perplexities; NaN
  long long evicted = 0, budget = 0;
  std::string protection;
  long long asked = 0;               // questions; rows of one method are put together by them
  std::vector<std::size_t> sources;  // numbers of the lines in the results
};

struct ReportTable {  // one task: rows that may be held against one another
  std::string title, unit;
  bool percent = false;  // shares, more is better; else as they are, less is better
  std::vector<ReportRow> rows;
};

struct ReportFigure {  // as Plotly draws it
  std::string title;
  nlohmann::json data, layout;
  bool small = false;  // several stand side by side
};

struct ReportSource {
  std::string command, version, started, error, said;
  double seconds = 0;
};

struct Report {
  std::vector<ReportTable> tables;
  std::vector<ReportFigure> figures;
  std::vector<ReportSource> sources;  // of every line, failed ones included
};

// Throws Error if there is nothing to report on.
Report make_report(std::span<const nlohmann::json> lines);

std::string to_markdown(const Report& report, const std::string& title);
// One page that needs no other file: `plotly` is the text of plotly.min.js.
std::string to_html(const Report& report, const std::string& title, std::string_view plotly);

}  // namespace palimpsest
