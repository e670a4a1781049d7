// Commands that hold several methods side by side: --method once for each.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/options.h"

namespace palimpsest::cli {

struct MethodListFlags {
  std::vector<std::string> methods;
  CacheFlags cache;  // what all of them share; --budget, --sinks, ... replace that part in every method
};

struct NamedMethod {
  std::string name;  // as the user wrote it: short enough for tables and legends
  SessionOptions options;
};

void add_method_list(CLI::App& command, MethodListFlags& flags, std::vector<std::string> defaults);
// `tokens`: how many will come at most.
std::vector<NamedMethod> method_list(const MethodListFlags& flags, const Hyperparameters& hyper, long long tokens);

}  // namespace palimpsest::cli
