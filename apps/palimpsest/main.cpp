// The palimpsest command: parses the command line, runs one subcommand, turns errors into one line and an exit code.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "palimpsest/command_line.h"
#include "palimpsest/commands.h"
#include "palimpsest/core/cpu_level.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/version.h"
#include "palimpsest/help.h"
#include "palimpsest/hub/download.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kMainFooter = R"(Examples:
  palimpsest run                                     the default model
  palimpsest run -m model.gguf -p "Once upon" -n -1  generates until Ctrl-C in a fixed-size KV cache
  palimpsest run -m model.gguf -f book.txt --method streaming:budget=1024,sinks=4
  palimpsest pull smollm2                            fetches a model that chats (98 MB)
  palimpsest chat -m smollm2                         chat of any length
  palimpsest serve -m model.gguf                     OpenAI-compatible HTTP server
  palimpsest info model.gguf                         dimensions, tensors, cache size
  palimpsest plan -m model.gguf --memory 8GiB        how many requests fit, by method and length
  palimpsest methods                                 list of eviction methods

Exit codes: 0 success, 2 invalid input (one line on standard error), 130 stopped by Ctrl-C.)";

int run_program(int argc, char** argv) {
  limit_cpu_level();
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a failed write, it does not end the program
  CLI::App app("Runs GGUF language models with a KV cache of fixed size.", "palimpsest");
  app.footer(kMainFooter);
  app.set_version_flag("-V,--version", fmt::format("palimpsest {}", version()), "print the version and exit");
  app.set_help_flag("-h,--help", "print this help and exit");
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormat>());
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // a later flag replaces an earlier one

  Action action;
  add_run(app, action);
  add_chat(app, action);
  add_serve(app, action);
  add_info(app, action);
  add_plan(app, action);
  add_pull(app, action);
  add_pulled(app, action);
  add_methods(app, action);
  add_eval(app, action);
  add_fit(app, action);
  add_heads(app, action);
  add_import(app, action);
  add_bench(app, action);
  add_sweep(app, action);
  add_report(app, action);
  add_rpc_server(app, action);

  try {
    std::vector<std::string> words = translated(app, {argv + 1, argv + argc});
    std::ranges::reverse(words);  // as CLI11 takes them
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    fail("{}", explanation(app, error));
  }
  return action();
}

}  // namespace
}  // namespace palimpsest::cli

int main(int argc, char** argv) {
  try {
    return palimpsest::cli::run_program(argc, argv);
  } catch (const palimpsest::PullStopped&) {
    fmt::print(stderr, "palimpsest: stopped; pulling the model again goes on from here\n");
    return palimpsest::cli::kInterrupted;
  } catch (const palimpsest::Error& error) {
    fmt::print(stderr, "palimpsest: error: {}\n", error.what());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "palimpsest: error: out of memory: choose a smaller model, --budget or --prefill-chunk\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "palimpsest: error: {}\n", error.what());
  }
  return palimpsest::cli::kBadInput;
}
