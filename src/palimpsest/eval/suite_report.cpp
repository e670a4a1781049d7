// The report of eval/suite.h: the same tables as Markdown and as a page.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "palimpsest/eval/markup.h"
#include "palimpsest/eval/suite.h"

namespace palimpsest {
namespace {

struct MethodRow {
  std::string name;
  std::map<std::string, const SuiteResult*> cells;                           // by task
  double unknown = std::nan(""), known = std::nan(""), text = std::nan("");  // means over solved tasks; text: nats
  std::string error = {};
};

struct ShareTable {
  double share = 0;
  std::vector<MethodRow> rows;  // best first
};

struct Tables {
  std::vector<std::string> tasks, unsolved;  // in the order of the results
  std::map<std::string, const SuiteResult*> full;
  std::vector<ShareTable> shares;
};

// Of scores over the full cache's (for texts: the loss added, in nats); NaN: none.
double mean_of(const MethodRow& row, const Tables& tables, SuiteGroup group) {
  double sum = 0;
  int count = 0;
  for (const auto& [task, cell] : row.cells) {
    const auto full = tables.full.find(task);
    if (cell->group != group || full == tables.full.end() || !is_solved(*full->second) || !cell->error.empty())
      continue;
    sum += group == SuiteGroup::kText ? std::log(cell->score / full->second->score) : cell->score / full->second->score;
    ++count;
  }
  return count > 0 ? sum / count : std::nan("");
}

Tables make_tables(std::span<const SuiteResult> results) {
  Tables out;
  std::map<double, std::vector<MethodRow>, std::greater<>> by_share;
  for (const SuiteResult& r : results) {
    if (std::ranges::find(out.tasks, r.task) == out.tasks.end()) out.tasks.push_back(r.task);
    if (r.share >= 1) {
      out.full[r.task] = &r;
      continue;
    }
    auto& rows = by_share[r.share];
    auto row = std::ranges::find(rows, r.method, &MethodRow::name);
    if (row == rows.end()) row = rows.insert(rows.end(), MethodRow{r.method, {}});
    row->cells[r.task] = &r;
    if (!r.error.empty()) row->error = r.error;
  }
  for (const auto& [task, full] : out.full)
    if (!is_solved(*full)) out.unsolved.push_back(task);
  for (auto& [share, rows] : by_share) {
    for (MethodRow& row : rows) {
      row.unknown = mean_of(row, out, SuiteGroup::kUnknown);
      row.known = mean_of(row, out, SuiteGroup::kKnown);
      row.text = mean_of(row, out, SuiteGroup::kText);
    }
    std::ranges::stable_sort(rows, std::greater<>{}, [](const MethodRow& row) {
      const double least = std::min(std::isnan(row.unknown) ? 2 : row.unknown, std::isnan(row.known) ? 2 : row.known);
      return least > 1.99 ? -row.text : least;
    });
    out.shares.push_back({share, std::move(rows)});
  }
  return out;
}

std::string percent(double share) {
  return std::isnan(share) ? "" : fmt::format("{:.0f}%", 100 * share);
}

std::string cell_text(const SuiteResult& r) {
  if (!r.error.empty()) return "–";
  if (r.group == SuiteGroup::kText) return fmt::format("{:.1f}", r.score);
  return std::isfinite(r.low) ? fmt::format("{} ({:.0f}–{:.0f})", percent(r.score), 100 * r.low, 100 * r.high)
                              : percent(r.score);
}

std::string mebibytes(std::size_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
}

using Lines = std::vector<std::vector<std::string>>;

// The first line is the head.
Lines lines_of(const Tables& tables, const ShareTable& table) {
  std::vector<std::string> head = {"method", "asked after", "known",        "text, nats",
                                   "tokens", "cache, MiB",  "process, MiB", "ms a token"};
  for (const std::string& task : tables.tasks) head.push_back(task);
  Lines out = {head};
  const auto add = [&](const std::string& name, const MethodRow& row) {
    long long budget = 0;
    std::size_t cache = 0, process = 0;
    double ms = 0;
    int timed = 0;
    for (const auto& [task, cell] : row.cells) {
      if (!cell->error.empty()) continue;
      budget = cell->budget;
      cache = std::max(cache, cell->cache_bytes);
      process = std::max(process, cell->process_bytes);
      if (std::isfinite(cell->ms_per_token)) ms += cell->ms_per_token, ++timed;
    }
    std::vector<std::string>& line = out.emplace_back();
    line = {name,
            percent(row.unknown),
            percent(row.known),
            std::isnan(row.text) ? "" : fmt::format("{:+.3f}", row.text),
            budget > 0 ? fmt::format("{}", budget) : "all",
            mebibytes(cache),
            mebibytes(process),
            timed > 0 ? fmt::format("{:.1f}", ms / timed) : ""};
    for (const std::string& task : tables.tasks) {
      const auto cell = row.cells.find(task);
      line.push_back(cell == row.cells.end() ? "" : cell_text(*cell->second));
    }
  };
  MethodRow full{"full", tables.full};
  full.unknown = mean_of(full, tables, SuiteGroup::kUnknown);
  full.known = mean_of(full, tables, SuiteGroup::kKnown);
  full.text = mean_of(full, tables, SuiteGroup::kText);
  add("full", full);
  for (const MethodRow& row : table.rows) add(row.name, row);
  return out;
}

std::string heading(double share) {
  return fmt::format("1/{:.0f} of the bytes", 1 / share);
}

// What the papers' order of methods says of the other tasks.
std::vector<std::string> sentences(const Tables& tables) {
  std::vector<std::string> out;
  if (!tables.unsolved.empty())
    out.push_back(
        fmt::format("The full cache answers less than half of: {}. These say nothing about methods and are in no mean.",
                    fmt::join(tables.unsolved, ", ")));
  for (const ShareTable& table : tables.shares) {
    std::vector<double> unknown, known, both, text;
    for (const MethodRow& row : table.rows) {
      if (std::isfinite(row.unknown) && std::isfinite(row.known))
        unknown.push_back(row.unknown), known.push_back(row.known);
      if (std::isfinite(row.unknown) && std::isfinite(row.text)) both.push_back(row.unknown), text.push_back(-row.text);
    }
    const double questions = rank_correlation(unknown, known), texts = rank_correlation(both, text);
    if (std::isfinite(questions))
      out.push_back(fmt::format(
          "At 1/{:.0f}, the orders of {} methods by questions known beforehand and by questions asked afterwards "
          "have a rank correlation of {:.2f}.",
          1 / table.share, unknown.size(), questions));
    if (std::isfinite(texts))
      out.push_back(fmt::format("At 1/{:.0f}, the order by perplexity and by questions asked afterwards: {:.2f}.",
                                1 / table.share, texts));
    std::set<std::string> said;
    for (const MethodRow& row : table.rows)
      if (!row.error.empty() && said.insert(row.error).second)
        out.push_back(fmt::format("Not measured at 1/{:.0f}: {} ({}).", 1 / table.share, row.name, row.error));
  }
  return out;
}

std::string introduction(const SuiteAbout& about) {
  return fmt::format(
      "{}; {} tokens; {}; palimpsest {}. A method may hold as many bytes as KeyDiff does with that share of the "
      "tokens, "
      "tables and statistics included. *asked after*, *known*: means over the tasks that the full cache solves, over "
      "its "
      "score; *text*: loss added to a text behind a prompt. Brackets: 95% intervals (Wilson). Sorted by the worse of "
      "the two "
      "means. *process*: peak of the whole program.",
      about.model, about.length, about.machine, about.version);
}

}  // namespace

std::string suite_markdown(std::span<const SuiteResult> results, const SuiteAbout& about) {
  const Tables tables = make_tables(results);
  std::string out = fmt::format("# Methods at equal bytes\n\n{}\n", introduction(about));
  for (const ShareTable& table : tables.shares) {
    const Lines lines = lines_of(tables, table);
    out += fmt::format("\n## {}\n\n", heading(table.share));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      out += fmt::format("| {} |\n", fmt::join(lines[i], " | "));
      if (i > 0) continue;
      for (std::size_t c = 0; c < lines[i].size(); ++c) out += c == 0 ? "|---|" : "---:|";
      out += "\n";
    }
  }
  out += "\n";
  for (const std::string& sentence : sentences(tables)) out += "- " + sentence + "\n";
  return out;
}

std::string suite_html(std::span<const SuiteResult> results, const SuiteAbout& about) {
  const Tables tables = make_tables(results);
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Methods at equal bytes</title><link "
      "rel=\"icon\" "
      "href=\"data:,\"><style>body{font:15px/1.5 "
      "system-ui,sans-serif;margin:2rem;color:#222;background:#fff}div{overflow-x:auto}"
      "table{border-collapse:collapse}th,td{padding:.15rem .6rem;text-align:right;border-bottom:1px solid "
      "#ddd;white-space:nowrap}"
      "th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:#fff}tbody "
      "tr:first-child{font-weight:600}"
      "</style></head>\n<body><h1>Methods at equal bytes</h1>\n";
  out += fmt::format("<p>{}</p>\n", escape_markup(introduction(about)));
  for (const ShareTable& table : tables.shares) {
    out += fmt::format("<h2>{}</h2>\n<div><table>", heading(table.share));
    const Lines lines = lines_of(tables, table);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const char* const tag = i == 0 ? "th" : "td";
      out += i == 0 ? "<thead><tr>" : i == 1 ? "<tbody><tr>" : "<tr>";
      for (const std::string& cell : lines[i]) out += fmt::format("<{0}>{1}</{0}>", tag, escape_markup(cell));
      out += i == 0 ? "</tr></thead>" : "</tr>\n";
    }
    out += "</tbody></table></div>\n";
  }
  out += "<ul>\n";
  for (const std::string& sentence : sentences(tables)) out += fmt::format("<li>{}</li>\n", escape_markup(sentence));
  return out + "</ul>\n</body></html>\n";
}

}  // namespace palimpsest
