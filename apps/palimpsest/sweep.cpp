// palimpsest sweep: runs many evaluations in sequence; a failed one does not stop the others.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "palimpsest/commands.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/version.h"
#include "palimpsest/eval/results_file.h"
#include "palimpsest/eval/sweep_plan.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/progress.h"
#include "palimpsest/sweep_run.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

using nlohmann::json;

constexpr const char* kSweepFooter = R"(The file lists commands with {placeholders}, and the values of each placeholder:
  {"each": {"budget": [64, 128, 256]},
   "runs": [{"run": "eval needle --lengths {length} --method {method}",
             "each": {"length": [512, 2048], "method": ["full", "streaming:budget={budget}"]}}]}
Each run starts this program with --json; its result is on disk before the next run starts.

Examples:
  palimpsest sweep bench/sweeps/default-model.json -o results.jsonl
  palimpsest sweep bench/sweeps/default-model.json -o results.jsonl --list
  palimpsest report results.jsonl -o report.html)";

struct SweepFlags {
  std::string plan, results;
  bool list = false, retry = false;
  std::optional<long long> only;
};

std::string default_results(const std::string& plan) {
  return std::filesystem::path(plan).stem().string() + ".results.jsonl";
}

// Finished commands -> success. The last line of a command counts.
std::unordered_map<std::string, bool> done_in(const std::vector<json>& lines) {
  std::unordered_map<std::string, bool> done;
  for (const json& line : lines)
    if (line.value("version", "") == version()) done[line.value("command", "")] = line.contains("result");
  return done;
}

// One run, for schedulers of other machines (deploy/ray/sweep.py): its line goes to standard output.
int run_only(const std::vector<SweepRun>& all, long long number) {
  if (number < 1 || number > std::ssize(all))
    fail("--only {}: give the number of a line of --list, from 1 to {}", number, all.size());
  interrupted();  // Ctrl-C ends the run
  const json line = run_line(all[static_cast<std::size_t>(number - 1)]);
  if (interrupted()) return kInterrupted;
  fmt::print("{}\n", line.dump(-1, ' ', false, json::error_handler_t::replace));
  return line.contains("result") ? kOk : 1;
}

int run_sweep(const SweepFlags& flags) {
  const std::vector<SweepRun> all = parse_sweep(read_text(flags.plan, "the sweep"), flags.plan);
  if (flags.only) return run_only(all, *flags.only);
  if (flags.list) {
    for (const SweepRun& run : all) fmt::print("{}\n", run.command());
    return kOk;
  }
  const std::string path = flags.results.empty() ? default_results(flags.plan) : flags.results;
  ResultsFile results(path);
  const auto done = done_in(results.lines());
  std::vector<const SweepRun*> left;
  std::size_t failed_before = 0;
  for (const SweepRun& run : all) {
    const auto found = done.find(run.command());
    if (found != done.end() && !found->second) ++failed_before;
    if (found == done.end() || (flags.retry && !found->second)) left.push_back(&run);
  }
  if (results.torn()) fmt::print("{}: incomplete last line dropped\n", path);
  fmt::print(
      "{} runs; {} already done{}; {} to do; results in {}\n", all.size(), all.size() - left.size(),
      failed_before > 0 ? fmt::format(", {} of them failed{}", failed_before, flags.retry ? "" : " (--retry)") : "",
      left.size(), path);
  std::fflush(stdout);

  interrupted();  // from now on Ctrl-C ends a run, not this program
  Progress bar("sweep", "runs");
  std::size_t failed = 0, finished = 0;
  for (const SweepRun* each : left) {
    bar.update(static_cast<long long>(finished), static_cast<long long>(left.size()));
    const json line = run_line(*each);
    if (interrupted()) break;  // may be incomplete: it runs again on resume
    results.append(line);
    ++finished;
    if (line.contains("result")) continue;
    ++failed;
    bar.clear();
    fmt::print("failed: {}\n  {}\n", line["command"].get<std::string>(), line["error"].get<std::string>());
    std::fflush(stdout);
  }
  bar.clear();
  fmt::print("{} runs done, {} failed, {} remaining\n", finished, failed, left.size() - finished);
  if (interrupted()) return kInterrupted;
  return failed > 0 ? 1 : kOk;
}

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  auto flags = std::make_shared<SweepFlags>();
  CLI::App* command = app.add_subcommand("sweep", "Run many evaluations from a JSON file, resumable");
  command->footer(kSweepFooter);
  command->add_option("sweep", flags->plan, "JSON file, see below")->type_name("FILE")->required();
  command->add_option("-o,--results", flags->results, "results, one JSON line per run; completed runs are skipped")
      ->type_name("FILE")
      ->default_str("the sweep file's name with .results.jsonl");
  command->add_flag("--list", flags->list, "print the commands without running them");
  command->add_flag("--retry", flags->retry, "repeat failed runs");
  command
      ->add_option("--only", flags->only,
                   "run only the Nth of --list and print its line of results, as other schedulers need it")
      ->type_name("N");
  command->callback([flags, &action] { action = [flags] { return run_sweep(*flags); }; });
}

}  // namespace palimpsest::cli
