// Formats a report as Markdown and as one HTML page.
#include <fmt/format.h>

#include <cmath>

#include "palimpsest/eval/markup.h"
#include "palimpsest/eval/report.h"

namespace palimpsest {
namespace {

using nlohmann::json;

std::string figure_of(double value, bool percent) {
  if (!std::isfinite(value)) return "-";
  return percent ? fmt::format("{:.1f}%", 100 * value) : fmt::format("{:.4g}", value);
}

std::string interval(const ReportRow& row, bool percent) {
  if (!std::isfinite(row.low)) return "";
  return fmt::format(" [{}, {}]", figure_of(row.low, percent), figure_of(row.high, percent));
}

std::string difference(const ReportRow& row) {
  if (!std::isfinite(row.difference_low)) return "-";
  return fmt::format("{:+.4f} [{:+.4f}, {:+.4f}]", row.difference, row.difference_low, row.difference_high);
}

std::vector<std::string> cells_of(const ReportRow& row, bool percent) {
  return {row.method,
          row.budget == 0 ? "-" : fmt::format("{}", row.budget),
          row.protection,
          fmt::format("{:.1f}", static_cast<double>(row.bytes) / 1024),
          fmt::format("{:.1f}", static_cast<double>(row.peak) / 1024),
          fmt::format("{}", row.evicted),
          figure_of(row.quality, percent) + interval(row, percent),
          percent ? std::isfinite(row.tpot) ? fmt::format("{:.3f}", row.tpot) : "-" : difference(row)};
}

std::vector<std::string> heads_of(const ReportTable& table) {
  return {"method",
          "budget",
          "protected",
          "cache, KiB",
          "peak, KiB",
          "evicted",
          table.unit + " (95%)",
          table.percent ? "ms per token" : "difference to the first, nats (95%)"};
}

std::size_t failures(const Report& report) {
  std::size_t count = 0;
  for (const ReportSource& source : report.sources) count += source.error.empty() ? 0 : 1;
  return count;
}

std::string summary(const Report& report) {
  return fmt::format("{} runs, {} failed. Numbers in brackets name the run: its command is at the end.",
                     report.sources.size(), failures(report));
}

// JSON inside a script element: escapes "</", which could end it.
std::string in_script(const json& value) {
  std::string out = value.dump(-1, ' ', false, json::error_handler_t::replace);
  for (auto at = out.find("</"); at != std::string::npos; at = out.find("</", at + 3)) out.insert(at + 1, "\\");
  return out;
}

// Long tables are collapsed.
void add_tables(const Report& report, std::string& out) {
  constexpr std::size_t kShort = 12;
  out += "<h2 id=\"tables\">Tables</h2>\n";
  for (const ReportTable& table : report.tables) {
    out += fmt::format("<details{}><summary>{} ({} rows)</summary>\n<table><tr>",
                       table.rows.size() > kShort ? "" : " open", escape_markup(table.title), table.rows.size());
    for (const std::string& head : heads_of(table)) out += fmt::format("<th>{}</th>", escape_markup(head));
    out += "<th>run</th></tr>\n";
    for (const ReportRow& row : table.rows) {
      const ReportSource& source = report.sources[row.sources.front()];
      out +=
          fmt::format("<tr title=\"{}&#10;version {}\">", escape_markup(source.command), escape_markup(source.version));
      for (const std::string& cell : cells_of(row, table.percent))
        out += fmt::format("<td>{}</td>", escape_markup(cell));
      out += "<td>";
      for (const std::size_t each : row.sources) out += fmt::format(" <a href=\"#run-{0}\">{0}</a>", each + 1);
      out += "</td></tr>\n";
    }
    out += "</table></details>\n";
  }
}

constexpr const char* kStyle = R"(
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.5rem 0 1rem}
th,td{padding:.15rem .7rem;text-align:right;border-bottom:1px solid #ddd}th:first-child,td:first-child{text-align:left}
.maps{display:flex;flex-wrap:wrap}.maps>div{width:32rem;max-width:100%}h3{font-size:1rem;margin:1rem 0 0}
summary{cursor:pointer;font-weight:600;margin:.5rem 0}.failed{color:#a00}li:target{background:#ffd}
code{font-size:.85em;overflow-wrap:anywhere})";

}  // namespace

std::string to_markdown(const Report& report, const std::string& title) {
  std::string out = fmt::format("# {}\n\n{}\n", title, summary(report));
  for (const ReportTable& table : report.tables) {
    out += fmt::format("\n## {}\n\n|", table.title);
    for (const std::string& head : heads_of(table)) out += fmt::format(" {} |", head);
    out += " run |\n|---|---:|---|---:|---:|---:|---:|---:|---|\n";
    for (const ReportRow& row : table.rows) {
      out += "|";
      for (const std::string& cell : cells_of(row, table.percent)) out += fmt::format(" {} |", cell);
      for (const std::size_t each : row.sources) out += fmt::format(" [{0}](#run-{0})", each + 1);
      out += " |\n";
    }
  }
  out += "\n## Runs\n\n";
  for (std::size_t i = 0; i < report.sources.size(); ++i) {
    const ReportSource& source = report.sources[i];
    out += fmt::format("- <a id=\"run-{0}\"></a>[{0}] `{1}` (version {2}, {3}, {4:.1f} s){5}{6}\n", i + 1,
                       source.command, source.version, source.started, source.seconds,
                       source.error.empty() ? "" : " **failed**: " + source.error,
                       source.warning.empty() ? "" : "; said: " + source.warning);
  }
  return out;
}

std::string to_html(const Report& report, const std::string& title, std::string_view plotly) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><link rel=\"icon\" "
      "href=\"data:,\"><style>{1}</style>\n<script>",
      escape_markup(title), kStyle);
  out += plotly;
  out += fmt::format(
      "</script></head>\n<body><h1>{}</h1><p>{}</p>\n<p><a href=\"#maps\">Maps</a> <a "
      "href=\"#tables\">Tables</a> <a href=\"#runs\">Runs</a></p>\n",
      escape_markup(title), summary(report));
  bool maps = false;
  json figures = json::array();
  for (const ReportFigure& figure : report.figures) {
    if (figure.small != maps) out += figure.small ? "<h2 id=\"maps\">Maps</h2><div class=\"maps\">\n" : "</div>\n";
    maps = figure.small;
    out += fmt::format("<div><h3>{}</h3><div id=\"figure-{}\"></div></div>\n", escape_markup(figure.title),
                       figures.size());
    figures.push_back({{"data", figure.data}, {"layout", figure.layout}});
  }
  if (maps) out += "</div>\n";
  add_tables(report, out);
  out += "<h2 id=\"runs\">Runs</h2><ol>\n";
  for (std::size_t i = 0; i < report.sources.size(); ++i) {
    const ReportSource& source = report.sources[i];
    out += fmt::format("<li id=\"run-{}\"><code>{}</code> (version {}, {}, {:.1f} s)", i + 1,
                       escape_markup(source.command), escape_markup(source.version), escape_markup(source.started),
                       source.seconds);
    if (!source.error.empty()) out += fmt::format(" <b class=\"failed\">failed: {}</b>", escape_markup(source.error));
    if (!source.warning.empty()) out += fmt::format(" said: {}", escape_markup(source.warning));
    out += "</li>\n";
  }
  out += "</ol>\n<script>const figures = " + in_script(figures) +
         ";\nfigures.forEach((f, i) => Plotly.newPlot('figure-' + i, f.data, f.layout, {responsive: true}));</script>\n"
         "</body></html>\n";
  return out;
}

}  // namespace palimpsest
