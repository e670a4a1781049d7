// palimpsest report: formats a results file as one HTML page and as Markdown.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "palimpsest/commands.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/eval/report.h"
#include "palimpsest/eval/results_file.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kReportFooter =
    R"(The page embeds Plotly. `make report RESULTS=...` downloads it from PyPI. Manually: `pip download --no-deps
plotly`, then extract plotly/package_data/plotly.min.js from the wheel.

Examples:
  palimpsest report results.jsonl --markdown report.md
  palimpsest report results.jsonl -o report.html --plotly plotly.min.js)";

struct ReportFlags {
  std::vector<std::string> results;
  std::string html, markdown, plotly, title = "Palimpsest: results";
};

std::string plotly_text(const ReportFlags& flags) {
  const char* named = std::getenv("PALIMPSEST_PLOTLY");
  const std::string path = !flags.plotly.empty() ? flags.plotly : named != nullptr ? named : "";
  if (path.empty())
    fail("an HTML page needs plotly.min.js: name it with --plotly or $PALIMPSEST_PLOTLY, or use --markdown only");
  std::string text = read_text(path, "the plotting library");
  if (text.find("Plotly") == std::string::npos) fail("'{}' is not plotly.min.js", path);
  return text;
}

void write_file(const std::string& path, const std::string& text) {
  NewFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
  std::filesystem::permissions(path, std::filesystem::perms::group_read | std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  fmt::print("{}: {}\n", path, human_bytes(text.size()));
}

int run_report(const ReportFlags& flags) {
  if (flags.html.empty() && flags.markdown.empty()) fail("name an output file: -o PAGE.html, --markdown FILE or both");
  std::vector<nlohmann::json> lines;
  for (const std::string& path : flags.results)
    for (auto& line : read_results(path)) lines.push_back(std::move(line));
  const Report report = make_report(lines);
  if (!flags.html.empty()) write_file(flags.html, to_html(report, flags.title, plotly_text(flags)));
  if (!flags.markdown.empty()) write_file(flags.markdown, to_markdown(report, flags.title));
  return kOk;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* command = app.add_subcommand("report", "Write the results of a sweep as HTML and Markdown");
  command->footer(kReportFooter);
  command->add_option("results", flags->results, "results of `palimpsest sweep`; several files are combined")
      ->type_name("FILE...")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("-o,--html", flags->html, "output HTML file")->type_name("FILE");
  command->add_option("--markdown", flags->markdown, "output Markdown file")->type_name("FILE");
  command->add_option("--plotly", flags->plotly, "plotly.min.js, to embed into the page")
      ->type_name("FILE")
      ->default_str("$PALIMPSEST_PLOTLY");
  command->add_option("--title", flags->title, "title of the page")->capture_default_str();
  command->callback([flags, &action] { action = [flags] { return run_report(*flags); }; });
}

}  // namespace palimpsest::cli
