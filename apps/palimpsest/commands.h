// The subcommands, one file each. add_x() declares the flags of one; its callback sets `action`, which main() runs
// after the whole command line is parsed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace palimpsest::cli {

using Action = std::function<int()>;  // returns the exit code; throws Error for bad input

inline constexpr int kOk = 0, kBadInput = 2, kInterrupted = 130;

void add_run(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_pull(CLI::App& app, Action& action);
void add_pulled(CLI::App& app, Action& action);  // list, rm
void add_methods(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_fit(CLI::App& app, Action& action);
void add_heads(CLI::App& app, Action& action);
void add_import(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_sweep(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_rpc_server(CLI::App& app, Action& action);

}  // namespace palimpsest::cli
