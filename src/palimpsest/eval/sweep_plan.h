// A sweep: commands with {placeholders}, and the values of each placeholder.
//
//   {
//     "each": {"budget": [64, 128]},                                   places that all runs may have
//     "runs": [{"run": "eval needle --lengths {length} --method {method}",
//               "each": {"length": [512, 1024], "method": ["full", "streaming:budget={budget}"]}}]
//   }
//
// All combinations, in the order of the file, the last place turning fastest; values may hold places. A command that
// comes out twice is one run: `full` has no budget, so it runs once whatever the budgets.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

struct SweepRun {
  std::vector<std::string> words;             // after the program's name
  std::map<std::string, std::string> places;  // of those that the command has
  std::string command() const;                // as typed
};

// Throws Error that names the place or field. `file` is what errors call it.
std::vector<SweepRun> parse_sweep(std::string_view json, const std::string& file);

}  // namespace palimpsest
