#include "palimpsest/sweep_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <string>
#include <utility>

#include "palimpsest/child.h"
#include "palimpsest/core/version.h"

namespace palimpsest::cli {
namespace {

using nlohmann::json;

// The last line of standard error: the error of a failed command.
std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  const auto end = text.rfind('\n');
  return end == std::string::npos ? text : text.substr(end + 1);
}

json line_of(const SweepRun& run, const ChildResult& child, const std::string& started) {
  json line = {{"command", run.command()}, {"version", version()},     {"placeholders", run.placeholders},
               {"started", started},       {"seconds", child.seconds}, {"peak_bytes", child.peak_bytes},
               {"code", child.code}};
  json result = json::parse(child.out, nullptr, /*allow_exceptions=*/false);
  const std::string last_error_line = last_line(child.err);
  if (child.code == 0 && result.is_object())
    line["result"] = std::move(result);
  else
    line["error"] = !last_error_line.empty() ? last_error_line
                    : child.code > 128       ? fmt::format("ended by signal {}", child.code - 128)
                                             : "no JSON output";
  if (line.contains("result") && !last_error_line.empty()) line["warning"] = last_error_line;
  return line;
}

}  // namespace

json run_line(const SweepRun& run) {
  std::vector<std::string> words(run.words);
  words.emplace_back("--json");
  const std::string started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  return line_of(run, run_this_program(words), started);
}

}  // namespace palimpsest::cli
