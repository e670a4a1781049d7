// Subcommands of `palimpsest bench` in separate files.
#pragma once

#include "palimpsest/commands.h"

namespace palimpsest::cli {

void add_bench_serve(CLI::App& bench, Action& action);
void add_bench_methods(CLI::App& bench, Action& action);

}  // namespace palimpsest::cli
