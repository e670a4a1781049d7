#include "palimpsest/eval/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

using nlohmann::json;

double number(const json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string joined(const json& numbers) {
  std::string out;
  for (const json& each : numbers) out += (out.empty() ? "" : ", ") + each.dump();
  return out;
}

// The title of a result's table: results with the same task and settings share one.
std::string title_of(const json& result, const json& run) {
  const std::string task = result.value("task", "");
  std::string title = task;
  if (task == "perplexity") {
    const json& files = result.at("files");
    title = fmt::format("Perplexity of {} tokens of {}", result.at("tokens").dump(),
                        files.size() == 1 ? std::filesystem::path(files[0].value("file", "")).filename().string()
                                          : fmt::format("{} texts", files.size()));
  } else if (task == "needle") {
    title = fmt::format("Needle '{}' in {} tokens", result.value("kind", ""), joined(result.at("lengths")));
  } else if (task == "ruler") {
    title = fmt::format("RULER {} in {} tokens", result.value("kind", ""), result.at("length").dump());
  } else if (task == "longbench") {
    title = fmt::format("LongBench {}, {} records", result.value("dataset", ""), result.at("records").dump());
  }
  if (run.contains("question_seen")) title += fmt::format(", question seen {}", run.value("question_seen", ""));
  if (run.value("chat", false)) title += ", as a chat";
  return title + ": " + result.value("model", "?");
}

ReportTable& table_of(std::vector<ReportTable>& tables, const std::string& title, const std::string& task) {
  for (ReportTable& each : tables)
    if (each.title == title) return each;
  ReportTable& made = tables.emplace_back();
  made.title = title;
  made.percent = task != "perplexity";
  made.unit = task == "perplexity" ? "perplexity" : task == "needle" ? "right" : "score";
  return made;
}

ReportRow row_of(const json& run, std::size_t source) {
  ReportRow row;
  row.method = run.value("name", "?");
  row.family = row.method.substr(0, row.method.find(':'));
  row.bytes = run.value("cache_bytes", std::size_t{0});
  row.peak = run.value("cache_bytes_peak", row.bytes);
  row.questions = run.value("questions", 0LL);
  row.budget = run.value("budget", 0LL);
  row.evicted = run.value("evicted", 0LL);
  row.protection = run.value("protected", "");
  const bool scored = run.contains("score");
  row.quality = number(run, scored ? "score" : "perplexity");
  row.low = number(run, "score_low");
  row.high = number(run, "score_high");
  if (!scored) {  // exp(nll +- 1.96 standard errors of the mean)
    row.low = std::exp(number(run, "nll") - 1.96 * number(run, "nll_error"));
    row.high = std::exp(number(run, "nll") + 1.96 * number(run, "nll_error"));
  }
  row.tpot = number(run, "tpot_ms");
  const json difference = run.value("difference", json::object());
  row.difference = number(difference, "nll");
  row.difference_low = number(difference, "low");
  row.difference_high = number(difference, "high");
  row.sources = {source};
  return row;
}

// Merges another seed of the same method into its row; the interval of the mean is then unknown. A repeated result adds
// only its source.
void add_row(ReportTable& table, const ReportRow& row) {
  const auto same = std::ranges::find_if(table.rows, [&](const ReportRow& each) {
    return each.method == row.method && (row.questions > 0 ? each.questions > 0 : each.quality == row.quality);
  });
  if (same == table.rows.end()) {
    table.rows.push_back(row);
    return;
  }
  if (row.questions == 0) {
    same->sources.push_back(row.sources.front());
    return;
  }
  const double share = static_cast<double>(row.questions) / static_cast<double>(row.questions + same->questions);
  same->quality += (row.quality - same->quality) * share;
  same->tpot += (row.tpot - same->tpot) * share;
  same->low = same->high = std::numeric_limits<double>::quiet_NaN();
  same->bytes = std::max(same->bytes, row.bytes);
  same->peak = std::max(same->peak, row.peak);
  same->evicted += row.evicted;
  same->questions += row.questions;
  same->sources.push_back(row.sources.front());
}

json finite(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}

// One colour per family of methods; Plotly's default ten would repeat.
const json kPlotlyColours = {"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f",
                             "#bcbd22", "#17becf", "#000000", "#98df8a", "#ff9896", "#c5b0d5", "#c49c94", "#aec7e8"};

json layout(const std::string& x, const std::string& y, bool log_x) {
  return {{"colorway", kPlotlyColours},
          {"xaxis", {{"title", {{"text", x}}}, {"type", log_x ? "log" : "linear"}}},
          {"yaxis", {{"title", {{"text", y}}}}},
          {"hovermode", "closest"},
          {"height", 420},
          {"margin", {{"l", 60}, {"r", 20}, {"t", 20}, {"b", 50}}}};
}

std::string numbers_of(const std::vector<std::size_t>& sources) {
  std::string out;
  for (const std::size_t each : sources) out += fmt::format("{}{}", out.empty() ? "" : ", ", each + 1);
  return out;
}

// One line per family of methods, over bytes.
ReportFigure against_bytes(const ReportTable& table, const std::string& y, double ReportRow::*field, bool percent) {
  std::map<std::string, std::vector<const ReportRow*>> families;
  for (const ReportRow& row : table.rows)
    if (std::isfinite(row.*field) && row.bytes > 0) families[row.family].push_back(&row);
  ReportFigure figure{table.title, json::array(), layout("cache, KiB (tables included)", y, true)};
  const double scale = percent ? 100 : 1;
  for (auto& [family, rows] : families) {
    std::ranges::sort(rows, {}, [](const ReportRow* row) { return row->bytes; });
    json xs, ys, texts, up, down;
    for (const ReportRow* row : rows) {
      xs.push_back(static_cast<double>(row->bytes) / 1024);
      ys.push_back(row->*field * scale);
      texts.push_back(fmt::format("{} [{}]", row->method, numbers_of(row->sources)));
      const bool sure = field == &ReportRow::quality && std::isfinite(row->low);
      up.push_back(sure ? (row->high - row->quality) * scale : 0.0);
      down.push_back(sure ? (row->quality - row->low) * scale : 0.0);
    }
    figure.data.push_back({{"type", "scatter"},
                           {"mode", "lines+markers"},
                           {"name", family},
                           {"x", xs},
                           {"y", ys},
                           {"text", texts},
                           {"error_y", {{"type", "data"}, {"symmetric", false}, {"array", up}, {"arrayminus", down}}}});
  }
  return figure;
}

void add_curve(std::vector<ReportFigure>& figures, const std::string& title, const json& run, std::size_t source) {
  auto at = std::ranges::find(figures, title, &ReportFigure::title);
  if (at == figures.end()) {
    figures.push_back({title, json::array(), layout("token of the text", "perplexity", false)});
    figures.back().layout["yaxis"]["type"] = "log";
    at = figures.end() - 1;
  }
  json xs, ys;
  for (const json& bin : run.at("curve")) {
    xs.push_back((number(bin, "from") + number(bin, "to")) / 2);
    ys.push_back(finite(number(bin, "perplexity")));
  }
  at->data.push_back({{"type", "scatter"},
                      {"mode", "lines"},
                      {"name", fmt::format("{} [{}]", run.value("name", "?"), source + 1)},
                      {"x", xs},
                      {"y", ys}});
}

ReportFigure heat_map(const std::string& title, json xs, json ys, json zs, const std::string& x, const std::string& y) {
  ReportFigure figure{title, json::array(), layout(x, y, false), true};
  figure.layout["height"] = 260;
  figure.layout["xaxis"]["type"] = "category";
  figure.layout["yaxis"]["type"] = "category";
  figure.layout["yaxis"]["autorange"] = "reversed";
  figure.data.push_back({{"type", "heatmap"},
                         {"x", std::move(xs)},
                         {"y", std::move(ys)},
                         {"z", std::move(zs)},
                         {"zmin", 0},
                         {"zmax", 100},
                         {"colorscale", "Viridis"}});
  return figure;
}

// Merges the cells of several runs of one method (one per length, for instance) into one map.
class NeedleMaps {
 public:
  void add(const json& result, const json& run, std::size_t source) {
    Map& map = maps_[fmt::format("{}, {}: {}", run.value("name", "?"), result.value("kind", ""),
                                 run.value("question_seen", "") == "after" ? "question seen after" : "question seen")];
    map.sources += fmt::format("{}{}", map.sources.empty() ? "" : ", ", source + 1);
    for (const json& cell : run.at("cells")) {
      auto& [questions, right] = map.cells[{number(cell, "length"), number(cell, "depth")}];
      questions += number(cell, "questions");
      right += number(cell, "right");
    }
  }
  void draw(std::vector<ReportFigure>& figures) const {
    for (const auto& [title, map] : maps_) {
      std::vector<double> lengths, depths;
      for (const auto& [length_and_depth, counts] : map.cells) {
        lengths.push_back(length_and_depth.first);
        depths.push_back(length_and_depth.second);
      }
      for (auto* list : {&lengths, &depths}) {
        std::ranges::sort(*list);
        list->erase(std::ranges::unique(*list).begin(), list->end());
      }
      json xs = json::array(), ys = json::array(), zs = json::array();
      for (const double length : lengths) xs.push_back(fmt::format("{}", length));
      for (const double depth : depths) {
        ys.push_back(fmt::format("{:.0f}%", 100 * depth));
        json row = json::array();
        for (const double length : lengths) {
          const auto found = map.cells.find({length, depth});
          row.push_back(found == map.cells.end() ? json(nullptr)
                                                 : finite(100 * found->second.second / found->second.first));
        }
        zs.push_back(row);
      }
      figures.push_back(heat_map(fmt::format("{} [{}]", title, map.sources), xs, ys, zs, "tokens", "depth"));
    }
  }

 private:
  struct Map {
    std::map<std::pair<double, double>, std::pair<double, double>> cells;  // {length, depth} -> {asked, right}
    std::string sources;
  };
  std::map<std::string, Map> maps_;
};

ReportFigure kept_map(const json& result, const json& run, std::size_t source) {
  json xs = json::array(), ys = json::array(), zs = json::array();
  for (const json& edge : result.at("from")) xs.push_back(edge.dump());
  for (const json& head : run.at("heads")) {
    ys.push_back(fmt::format("{}.{}", head.value("layer", 0), head.value("head", 0)));
    json row = json::array();
    for (const json& share : head.at("share")) row.push_back(100 * share.get<double>());
    zs.push_back(row);
  }
  return heat_map(fmt::format("{} [{}]", run.value("name", "?"), source + 1), xs, ys, zs, "token of the text",
                  "layer.head");
}

}  // namespace

Report make_report(std::span<const json> lines) {
  Report report;
  NeedleMaps needles;
  std::vector<ReportFigure> curves, kept;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const json& line = lines[i];
    report.sources.push_back({line.value("command", "?"), line.value("version", "?"), line.value("started", "?"),
                              line.value("error", ""), line.value("warning", ""), number(line, "seconds")});
    if (!line.contains("result")) continue;
    try {
      const json& result = line.at("result");
      if (!result.contains("runs") || !result.contains("task")) continue;
      for (const json& run : result.at("runs")) {
        const std::string task = result.value("task", "");
        if (task == "retention" || task == "kept") {  // as earlier versions called it
          kept.push_back(kept_map(result, run, i));
          continue;
        }
        const std::string title = title_of(result, run);
        add_row(table_of(report.tables, title, task), row_of(run, i));
        if (run.contains("curve")) add_curve(curves, title, run, i);
        if (run.contains("cells")) needles.add(result, run, i);
      }
    } catch (const json::exception& error) {
      fail("line {} of the results: {}", i + 1, error.what());
    }
  }
  if (report.sources.empty()) fail("the results are empty: run a sweep first");
  for (ReportTable& table : report.tables)
    std::ranges::stable_sort(table.rows, {}, [](const ReportRow& row) { return std::pair(row.family, row.bytes); });
  for (const ReportTable& table : report.tables) {
    report.figures.push_back(
        against_bytes(table, table.percent ? table.unit + ", %" : table.unit, &ReportRow::quality, table.percent));
    ReportFigure speed = against_bytes(table, "ms per token (TPOT)", &ReportRow::tpot, false);
    if (!speed.data.empty()) {
      speed.title = "Time per output token: " + table.title;
      report.figures.push_back(std::move(speed));
    }
  }
  for (ReportFigure& each : curves) each.title = "By position in the text: " + each.title;
  std::ranges::move(curves, std::back_inserter(report.figures));
  needles.draw(report.figures);
  for (ReportFigure& each : kept) each.title = "Tokens kept: " + each.title;
  std::ranges::move(kept, std::back_inserter(report.figures));
  return report;
}

}  // namespace palimpsest
