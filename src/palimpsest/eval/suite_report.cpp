// The report of eval/suite.h: the same tables as Markdown and as a page.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "palimpsest/eval/markup.h"
#include "palimpsest/eval/suite.h"

namespace palimpsest {
namespace {

using Group = SuiteGroup;

// Groups with a mean, and the heads of their columns.
constexpr std::pair<Group, const char*> kMeans[] = {
    {Group::kUnknown, "asked after"}, {Group::kKnown, "known"},          {Group::kInstructions, "instructions"},
    {Group::kWork, "tools, code"},    {Group::kWritten, "long answers"}, {Group::kText, "text, nats"}};

struct MethodRow {
  std::string name;
  std::map<std::string, const SuiteResult*> cells;  // by task
  std::map<Group, double> means = {};               // over solved tasks, of groups that have some; text: nats
  std::string error = {};

  double mean(Group group) const {
    const auto found = means.find(group);
    return found == means.end() ? std::nan("") : found->second;
  }
  // The least mean of scores; of texts alone, what they lose.
  double least() const {
    double out = 2;
    for (const auto& [group, value] : means)
      if (group != Group::kText) out = std::min(out, value);
    return out < 2 ? out : std::isnan(mean(Group::kText)) ? -2 : -mean(Group::kText);
  }
};

struct ShareTable {
  double share = 0;
  std::vector<MethodRow> rows;  // best first
};

struct Tables {
  std::vector<std::string> tasks, unsolved;  // in the order of the results
  std::vector<std::pair<Group, const char*>> means;
  bool files = false;  // some method read one
  std::map<std::string, const SuiteResult*> full;
  std::vector<ShareTable> shares;
};

// Of scores over the full cache's (for texts: the loss added, in nats); NaN: none.
double mean_of(const MethodRow& row, const Tables& tables, Group group) {
  double sum = 0;
  int count = 0;
  for (const auto& [task, cell] : row.cells) {
    const auto full = tables.full.find(task);
    if (cell->group != group || full == tables.full.end() || !is_solved(*full->second) || !cell->error.empty())
      continue;
    sum += group == Group::kText ? std::log(cell->score / full->second->score) : cell->score / full->second->score;
    ++count;
  }
  return count > 0 ? sum / count : std::nan("");
}

void set_means(MethodRow& row, const Tables& tables) {
  for (const auto& [group, head] : kMeans)
    if (const double mean = mean_of(row, tables, group); std::isfinite(mean)) row.means[group] = mean;
}

Tables make_tables(std::span<const SuiteResult> results) {
  Tables out;
  std::map<double, std::vector<MethodRow>, std::greater<>> by_share;
  for (const SuiteResult& r : results) {
    if (std::ranges::find(out.tasks, r.task) == out.tasks.end()) out.tasks.push_back(r.task);
    out.files = out.files || !r.file.empty();
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
    for (MethodRow& row : rows) set_means(row, out);
    std::ranges::stable_sort(rows, std::greater<>{}, &MethodRow::least);
    out.shares.push_back({share, std::move(rows)});
  }
  for (const auto& each : kMeans)
    if (std::ranges::any_of(
            out.full, [&](const auto& full) { return full.second->group == each.first && is_solved(*full.second); }))
      out.means.push_back(each);
  return out;
}

std::string percent(double share) {
  return std::isnan(share) ? "" : fmt::format("{:.0f}%", 100 * share);
}

std::string cell_text(const SuiteResult& r) {
  if (!r.error.empty()) return "–";
  if (r.group == Group::kText || r.group == Group::kShown) return fmt::format("{:.1f}", r.score);
  return std::isfinite(r.low) ? fmt::format("{} ({:.0f}–{:.0f})", percent(r.score), 100 * r.low, 100 * r.high)
                              : percent(r.score);
}

std::string mebibytes(std::size_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
}

constexpr const char* kSaw = " \u2020";  // after a method that was chosen by a task's generator

using Lines = std::vector<std::vector<std::string>>;

// The first line is the head.
Lines lines_of(const Tables& tables, const ShareTable& table) {
  std::vector<std::string> head = {"method"};
  for (const auto& [group, name] : tables.means) head.emplace_back(name);
  for (const char* name : {"tokens", "cache, MiB", "process, MiB", "ms a token"}) head.emplace_back(name);
  if (tables.files) head.emplace_back("file, KiB");
  for (const std::string& task : tables.tasks) head.push_back(task);
  Lines out = {head};
  const auto add = [&](const std::string& name, const MethodRow& row) {
    long long budget = 0;
    std::size_t cache = 0, process = 0, file = 0;
    bool saw = false;
    double ms = 0;
    int timed = 0;
    for (const auto& [task, cell] : row.cells) {
      if (!cell->error.empty()) continue;
      budget = cell->budget;
      cache = std::max(cache, cell->cache_bytes);
      process = std::max(process, cell->process_bytes);
      file = std::max(file, cell->file_bytes);
      saw = saw || !cell->saw.empty();
      if (std::isfinite(cell->ms_per_token)) ms += cell->ms_per_token, ++timed;
    }
    std::vector<std::string>& line = out.emplace_back();
    line = {saw ? name + kSaw : name};
    for (const auto& [group, head_] : tables.means) {
      const double mean = row.mean(group);
      line.push_back(group == Group::kText && std::isfinite(mean) ? fmt::format("{:+.3f}", mean) : percent(mean));
    }
    for (const std::string& each : {budget > 0 ? fmt::format("{}", budget) : "all", mebibytes(cache),
                                    mebibytes(process), timed > 0 ? fmt::format("{:.1f}", ms / timed) : ""})
      line.push_back(each);
    if (tables.files) line.push_back(file > 0 ? fmt::format("{:.1f}", static_cast<double>(file) / 1024) : "");
    for (const std::string& task : tables.tasks) {
      const auto cell = row.cells.find(task);
      line.push_back(cell == row.cells.end() ? "" : cell_text(*cell->second));
    }
  };
  MethodRow full{"full", tables.full};
  set_means(full, tables);
  add("full", full);
  for (const MethodRow& row : table.rows) add(row.name, row);
  return out;
}

std::string heading(double share) {
  return fmt::format("1/{:.0f} of the bytes", 1 / share);
}

// Files that methods read, and tasks that they were chosen by.
void add_origins(const Tables& tables, std::vector<std::string>& out) {
  std::set<std::string> said;
  for (const ShareTable& table : tables.shares)
    for (const MethodRow& row : table.rows)
      for (const auto& [task, cell] : row.cells) {
        if (!cell->file.empty() && said.insert("file " + row.name).second)
          out.push_back(fmt::format("{} reads {} beside the model.", row.name, cell->file));
        if (!cell->saw.empty() && said.insert("saw " + row.name).second)
          out.push_back(fmt::format("{}{} has seen the generator of tasks: {}.", row.name, kSaw, cell->saw));
      }
}

// What the papers' order of methods says of the other tasks.
std::vector<std::string> sentences(const Tables& tables, const SuiteAbout& about) {
  std::vector<std::string> out;
  if (!tables.unsolved.empty())
    out.push_back(
        fmt::format("The full cache answers less than half (of LongBench: a tenth) of: {}. These say nothing about "
                    "methods and are in no mean.",
                    fmt::join(tables.unsolved, ", ")));
  if (!about.left_out.empty()) out.push_back(fmt::format("Left out: {}.", fmt::join(about.left_out, "; ")));
  add_origins(tables, out);
  for (const ShareTable& table : tables.shares) {
    std::vector<double> unknown, known, both, text;
    for (const MethodRow& row : table.rows) {
      const double after = row.mean(Group::kUnknown), before = row.mean(Group::kKnown), loss = row.mean(Group::kText);
      if (std::isfinite(after) && std::isfinite(before)) unknown.push_back(after), known.push_back(before);
      if (std::isfinite(after) && std::isfinite(loss)) both.push_back(after), text.push_back(-loss);
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
      "tables and statistics included; *file*: what it reads beside the model, not counted in these. Means are over "
      "the "
      "tasks that the full cache solves, over its score; *text*: loss added to a text behind a prompt. Brackets: 95% "
      "intervals. Sorted by the worst mean of scores. *process*: peak of the whole program.",
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
  for (const std::string& sentence : sentences(tables, about)) out += "- " + sentence + "\n";
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
  for (const std::string& sentence : sentences(tables, about))
    out += fmt::format("<li>{}</li>\n", escape_markup(sentence));
  return out + "</ul>\n</body></html>\n";
}

}  // namespace palimpsest
