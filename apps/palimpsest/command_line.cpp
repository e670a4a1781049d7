#include "palimpsest/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "palimpsest/core/error.h"
#include "palimpsest/core/nearest_name.h"
#include "palimpsest/evict/method.h"

namespace palimpsest::cli {
namespace {

// Names of other programs (llama.cpp, Ollama, vLLM, transformers) for flags that we have.
constexpr ShortName kAliases[] = {{"--temperature", "--temp"},
                                  {"--max-tokens", "--n-predict"},
                                  {"--max-new-tokens", "--n-predict"},
                                  {"--num-predict", "--n-predict"},
                                  {"--ctx", "--ctx-size"},
                                  {"--num-ctx", "--ctx-size"},
                                  {"--max-model-len", "--ctx-size"},
                                  {"--kv-cache-dtype", "--cache-type"},
                                  {"--repetition-penalty", "--repeat-penalty"},
                                  {"--batch-size", "--prefill-chunk"},
                                  {"--ubatch-size", "--prefill-chunk"},
                                  {"-b", "--prefill-chunk"},
                                  {"-ub", "--prefill-chunk"},
                                  {"-tb", "--threads-batch"},
                                  {"-sys", "--system"},
                                  {"--system-prompt", "--system"}};

// Flags that we do not have, and what to do.
struct Foreign {
  std::vector<std::string_view> names;
  const char* what;
};
const std::vector<Foreign> kForeign = {
    {{"-ngl", "--gpu-layers", "--n-gpu-layers"},
     "--device NAME runs the model on a device (see `palimpsest info --devices`); several devices share the layers"},
    {{"-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"},
     "`palimpsest chat` is a conversation"},
    {{"-no-cnv", "--no-conversation"}, "`palimpsest run --raw` continues a text without the chat template"},
    {{"-fa", "--flash-attn"}, "attention never stores a matrix of weights: leave the flag out"},
    {{"--mlock", "--no-mmap", "--no-warmup", "--color", "--simple-io", "-e", "--escape", "--no-display-prompt"},
     "there is no such choice: leave the flag out"},
    {{"--jinja", "--no-jinja"}, "chat templates are always Jinja: leave the flag out"},
    {{"--context-shift", "--no-context-shift"},
     "a method decides which tokens stay: --method full keeps all, streaming the first and the newest"},
    {{"--verbose"}, "times and evictions are always printed at the end: leave the flag out"},
    {{"--keepalive"}, "a model stays loaded while `palimpsest serve` runs: leave the flag out"},
    {{"--format"}, "give a grammar with --grammar-file, or a JSON schema in a request to `palimpsest serve`"},
    {{"--tensor-parallel-size", "-tp"}, "--device and --rpc share a model's layers among devices"},
    {{"--gpu-memory-utilization"}, "--cache-memory MIB limits the memory of the cache"},
};

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); }))
    names.push_back(each->get_name());
  return names;
}

std::vector<std::string> names_of_flags(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* each : app.get_options())
    for (const std::string& name : each->get_lnames()) names.push_back("--" + name);
  return names;
}

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  const auto found = app.get_subcommands([&](const CLI::App* sub) { return sub->check_name(name); });
  return found.empty() ? nullptr : found.front();
}

// "--temp=0" -> "--temp"
std::string flag_of(const std::string& word) {
  return word.substr(0, word.starts_with("--") ? word.find('=') : word.npos);
}

bool has_flag(const CLI::App& command, const std::string& name) {
  return command.get_option_no_throw(name) != nullptr;
}

void translate_flag(const CLI::App& command, std::string& word) {
  const std::string flag = flag_of(word);
  for (const ShortName& each : kShortNames)
    if (flag == each.given) {
      word = each.name;
      return;
    }
  if (has_flag(command, flag)) return;
  for (const ShortName& each : kAliases)
    if (flag == each.given && has_flag(command, each.name)) return void(word.replace(0, flag.size(), each.name));
  for (const Foreign& each : kForeign)
    if (std::ranges::find(each.names, flag) != each.names.end()) fail("{}: {}", flag, each.what);
}

// The error of a flag or argument that no command expects.
std::string unexpected(const CLI::App& command, const std::string& word) {
  if (!word.starts_with('-')) return fmt::format("unexpected argument '{}'", word);
  const std::string flag = flag_of(word);
  if (const auto near = nearest_name(flag, names_of_flags(command)))
    return fmt::format("unknown flag '{}'; did you mean '{}'?", flag, *near);
  const std::string name = flag.substr(std::min(flag.size(), flag.find_first_not_of('-')));
  for (const MethodKey& each : method_keys())
    if (each.name == name && has_flag(command, "--method"))
      return fmt::format("'{}' is an option of the method: write --method auto:{}=...", flag, name);
  return fmt::format("unknown flag '{}'", flag);
}

}  // namespace

std::vector<std::string> translated(const CLI::App& app, std::vector<std::string> words) {
  if (words.empty()) return {"--help"};
  if (words[0] == "help") {
    words.erase(words.begin());
    words.push_back("--help");
  } else if (words[0] == "version" || words[0] == "-v") {
    words[0] = "--version";
  }
  const CLI::App* command = &app;
  std::string path = "palimpsest";
  std::size_t at = 0;
  for (; at < words.size() && !words[at].starts_with('-'); ++at) {
    const CLI::App* next = find_command(*command, words[at]);
    if (next == nullptr) break;
    command = next;
    path += " " + command->get_name();
  }
  if (const std::vector<std::string> commands = names_of_commands(*command); !commands.empty() && at < words.size()) {
    const std::string& word = words[at];
    if (!word.starts_with('-'))
      fail("unknown command '{}'{} (see `{} --help`)", word, did_you_mean(word, commands), path);
    if (command == &app && !has_flag(app, flag_of(word)))
      fail("a command is missing: write `palimpsest chat {}`, or run or serve (see `palimpsest --help`)",
           fmt::join(words, " "));
  }
  for (; at < words.size() && words[at] != "--"; ++at)
    if (words[at].starts_with('-')) translate_flag(*command, words[at]);
  return words;
}

std::string explanation(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string path = "palimpsest";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += " " + command->get_name();
  }
  std::string what = error.what();
  if (const auto rest = app.remaining(true);
      error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) && !rest.empty())
    what = unexpected(*command, rest.front());
  std::ranges::replace(what, '\n', ' ');
  return fmt::format("{} (see `{} --help`)", what, path);
}

}  // namespace palimpsest::cli
