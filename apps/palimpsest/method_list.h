// Flags of commands that compare several methods: --method once for each.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/options.h"
#include "palimpsest/writer.h"

namespace palimpsest::cli {

struct MethodListFlags {
  std::vector<std::string> methods;
  CacheFlags cache;  // common flags; --budget, --sinks, ... replace that option in every method
};

struct NamedMethod {
  std::string name;  // as the user wrote it: short enough for tables and legends
  SessionOptions options;
};

void add_method_list(CLI::App& command, MethodListFlags& flags, std::vector<std::string> defaults);
// `tokens`: max number of tokens.
std::vector<NamedMethod> method_list(const MethodListFlags& flags, const Hyperparameters& hyper,
                                     const Vocabulary* vocabulary, long long tokens);
// With shares of heads for the methods that use some (profile_of).
std::vector<NamedMethod> method_list(const MethodListFlags& flags, const TextModel& model, StepThreads threads,
                                     long long tokens);

// "protected: streaming: 4 sinks; h2o: the newest 128": a line beside a table of results.
std::string protection_line(const std::vector<NamedMethod>& list);

}  // namespace palimpsest::cli
