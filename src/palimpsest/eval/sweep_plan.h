// A sweep: commands with {placeholders}, and the values of each placeholder.
//
//   {
//     "each": {"budget": [64, 128]},                                   placeholders of all runs
//     "runs": [{"run": "eval needle --lengths {length} --method {method}",
//               "each": {"length": [512, 1024], "method": ["full", "streaming:budget={budget}"]}}]
//   }
//
// Runs all combinations in the order of the file; the last placeholder varies fastest. Values may contain placeholders.
// Equal commands are one run: `full` has no budget, so it runs once for all budgets.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

struct SweepRun {
  std::vector<std::string> words;                   // after the program's name
  std::map<std::string, std::string> placeholders;  // values of the command's placeholders
  std::string command() const;                      // as typed in a shell
};

// Throws Error that names the placeholder or field. `file`: name in errors.
std::vector<SweepRun> parse_sweep(std::string_view json, const std::string& file);

}  // namespace palimpsest
