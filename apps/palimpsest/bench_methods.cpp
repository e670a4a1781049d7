// palimpsest bench methods: methods compared at equal bytes over tasks, resumable.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "palimpsest/bench_commands.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/core/version.h"
#include "palimpsest/eval/data.h"
#include "palimpsest/eval/results_file.h"
#include "palimpsest/eval/suite.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/model/backend.h"
#include "palimpsest/options.h"
#include "palimpsest/progress.h"
#include "palimpsest/sweep_run.h"
#include "palimpsest/system.h"
#include "palimpsest/writer.h"

namespace palimpsest::cli {
namespace {

using nlohmann::json;

constexpr int kQuickSamples = 8, kQuestionsOfText = 32;
constexpr const char* kEqual = "keydiff:sinks=4,recent=16";  // its bytes at a budget are what all methods may hold

constexpr const char* kMethodsFooter =
    R"(The folder has results.jsonl (a line for each run, on disk before the next one starts), report.md
and report.html. The same command resumes an interrupted run, and repeats failed ones. Methods are names
of the list (--list) or methods without a budget.

Examples:
  palimpsest bench methods -m smollm2 --quick
  palimpsest bench methods -m smollm2 --text novel.txt --shares 1/2,1/4,1/8,1/16
  palimpsest bench methods -m smollm2 --methods 'auto;h2o;tova:sinks=4,recent=32' --tasks 'facts;text')";

struct MethodsFlags {
  ModelFlags model;
  std::string methods, tasks, shares = "1/4", folder = "methods", text, data, suite;
  long long length = 1024, samples = 25, seed = 1;
  int threads = 1;
  bool quick = false, list = false, json = false;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);)
    if (!part.empty()) out.push_back(part);
  return out;
}

std::vector<double> parse_shares(const std::string& text) {
  std::vector<double> out;
  for (const std::string& each : split(text, ',')) {
    int of = 0;
    char rest = 0;
    if (std::sscanf(each.c_str(), "1/%d%c", &of, &rest) != 1 || of < 2 || of > 1024)
      fail("--shares {}: give fractions from 1/2 to 1/1024, as in 1/4,1/8", text);
    out.push_back(1.0 / of);
  }
  if (out.empty()) fail("--shares: give at least one fraction, as in 1/4");
  return out;
}

class Bench {
 public:
  Bench(const MethodsFlags& flags, const Suite& suite, bool chat)
      : flags_(flags),
        chat_(chat),
        methods_(chosen_methods(suite, split(flags.methods, ';'))),
        tasks_(chosen_tasks(suite, split(flags.tasks, ';'))),
        shares_(parse_shares(flags.shares)) {
    if (flags.quick && flags.tasks.empty()) std::erase_if(tasks_, [](const SuiteTask& task) { return !task.quick; });
    if (flags.quick && flags.methods.empty())
      std::erase_if(methods_, [](const SuiteMethod& method) { return !method.quick; });
    leave_out();
    std::filesystem::create_directories(flags.folder);
    results_.emplace(flags.folder + "/results.jsonl");
    for (const json& line : results_->lines()) {
      if (line.value("version", "") != version() || line.contains("error")) continue;
      if (line.contains("result")) known_[line.value("command", "")] = line;
      if (const auto result = suite_result(line)) said_.emplace(line.value("command", ""), result->task);
    }
    text_ = flags.text;
    if (text_.empty()) write(text_ = flags.folder + "/text.txt", std::string(eval_data("haystack.txt")));
  }

  int run() {
    interrupted();  // from now on Ctrl-C ends a run, not this program
    total_ = std::ssize(tasks_) * (1 + std::ssize(methods_) * std::ssize(shares_));
    for (const SuiteTask& task : tasks_) measure(task, {.name = "full", .method = "full"}, 1, 0);
    for (const double share : shares_)
      for (const SuiteMethod& method : methods_) run_method(method, share);
    bar_.clear();
    const SuiteAbout about{
        .model = flags_.model.path,
        .machine = fmt::format("{}, {} thread{}", machine(), flags_.threads, flags_.threads == 1 ? "" : "s"),
        .version = version(),
        .length = flags_.length,
        .left_out = left_out_};
    write(flags_.folder + "/report.md", suite_markdown(measured_, about));
    write(flags_.folder + "/report.html", suite_html(measured_, about));
    if (flags_.json)
      print_json(about);
    else
      fmt::print("{}\n{} of {} runs; {}/report.md, {}/report.html\n", suite_markdown(measured_, about), done_, total_,
                 flags_.folder, flags_.folder);
    return interrupted() ? kInterrupted : kOk;
  }

 private:
  void print_json(const SuiteAbout& about) const {
    json results = json::array();
    for (const SuiteResult& each : measured_) results.push_back(to_json(each));
    fmt::print("{}\n", json{{"task", "methods"},
                            {"model", about.model},
                            {"version", about.version},
                            {"length", about.length},
                            {"left_out", about.left_out},
                            {"runs", results}}
                           .dump(2));
  }
  // Tasks that need a chat template or files which are not there.
  void leave_out() {
    std::erase_if(tasks_, [&](const SuiteTask& task) {
      std::string needs = missing_file(task);
      if (task.chat && !chat_) needs = "a chat template";
      if (!needs.empty()) left_out_.push_back(fmt::format("{} (needs {})", task.name, needs));
      return !needs.empty();
    });
    if (tasks_.empty()) fail("none of these tasks can be measured: {}", fmt::join(left_out_, "; "));
  }
  std::string missing_file(const SuiteTask& task) const {
    const std::string mark = "{data}/";
    for (const std::string& word : split(task.run, ' ')) {
      if (!word.starts_with(mark)) continue;
      const std::string file = word.substr(mark.size());
      if (flags_.data.empty() || !std::filesystem::exists(flags_.data + "/" + file))
        return fmt::format("{} in a folder of data: --data", file);
    }
    return {};
  }
  static std::string evaluation_of(const SuiteTask& task) { return split(task.run, ' ').at(1); }
  static std::string machine() {
    const auto devices = list_devices();
    const auto cpu = std::ranges::find(devices, true, &DeviceInfo::cpu);
    return cpu == devices.end() ? "unknown CPU" : cpu->description;
  }
  static void write(const std::string& path, const std::string& text) {
    NewFile file(path);
    file.write(std::as_bytes(std::span(text)));
    file.commit();
  }

  // The line of a run, this one's or an earlier one's; null after an interrupt.
  json line_of(const std::vector<std::string>& words, const std::string& label) {
    const SweepRun run{.words = words, .placeholders = {{"label", label}}};
    const auto known = known_.find(run.command());
    if (known != known_.end()) return known->second;
    if (interrupted()) return nullptr;
    bar_.update(done_, total_);
    const json line = run_line(run);
    if (interrupted()) return nullptr;
    known_[run.command()] = line;
    return line;
  }

  std::vector<std::string> command(const std::string& run, const SuiteMethod& method, long long budget) const {
    const std::vector<std::pair<std::string, std::string>> values = {
        {"length", std::to_string(flags_.length)},
        {"half", std::to_string(flags_.length / 2)},
        {"twice", std::to_string(flags_.length * 2)},
        {"text", text_},
        {"data", flags_.data},
        {"total", std::to_string(flags_.length * 3 / 2)},
        {"samples", std::to_string(flags_.quick ? std::min<long long>(flags_.samples, kQuickSamples) : flags_.samples)},
        {"seed", std::to_string(flags_.seed)}};
    std::vector<std::string> words;
    for (const std::string& word : split(run, ' ')) words.push_back(filled_command(word, values));
    const char* const more = method.method.find(':') == std::string::npos ? ":" : ",";
    for (const std::string& word :
         {std::string("-m"), flags_.model.path, std::string("-t"), std::to_string(flags_.threads),
          std::string("--page-size"), std::string("16"), std::string("--prefill-chunk"), std::string("128"),
          std::string("--method"),
          budget == 0 ? method.method : fmt::format("{}{}budget={}", method.method, more, budget)})
      words.push_back(word);
    if (chat_ && words[1] != "perplexity") words.emplace_back("--chat");
    if (!method.key_type.empty())
      for (const std::string& word : {std::string("-ctk"), method.key_type, std::string("-ctv"), method.value_type})
        words.push_back(word);
    return words;
  }

  // Bytes of the cache behind a text, at a budget; 0: not measured, and `error` says why.
  std::size_t bytes_at(const SuiteMethod& method, long long budget, std::string& error) {
    const std::string run = fmt::format("eval perplexity -f {{text}} --prompt {} --tokens {}", flags_.length,
                                        flags_.length + kQuestionsOfText);
    const json line = line_of(command(run, method, budget), "bytes");
    if (line.is_null()) return 0;
    if (!line.contains("seen")) remember(line, "seen", true);
    error = line.value("error", "");
    return line.contains("result") ? line["result"]["runs"][0].value("cache_bytes", std::size_t{0}) : 0;
  }

  // The most tokens that a method may keep in the bytes of kEqual at `tokens`.
  long long budget_of(const SuiteMethod& method, long long tokens, std::string& error) {
    const std::size_t target = bytes_at({.name = "keydiff", .method = kEqual}, tokens, error);
    if (target == 0) return 0;
    long long budget = tokens;
    constexpr int kTries = 3;
    for (int i = 0; i < kTries; ++i) {
      const std::size_t bytes = bytes_at(method, budget, error);
      if (bytes == 0) return 0;
      const double ratio = static_cast<double>(target) / static_cast<double>(bytes);
      if (ratio >= 0.995 && ratio <= 1.02) break;
      budget = std::max<long long>(1, static_cast<long long>(static_cast<double>(budget) * ratio));
    }
    return budget;
  }

  void run_method(const SuiteMethod& method, double share) {
    std::string error;
    const long long tokens = std::llround(share * static_cast<double>(flags_.length));
    const long long budget = budget_of(method, tokens, error);
    for (const SuiteTask& task : tasks_) {
      if (interrupted()) return;
      if (budget == 0) {
        measured_.push_back(
            {.task = task.name, .method = method.name, .group = task.group, .share = share, .error = error});
        ++done_;
      } else if (solved_[task.name]) {
        measure(task, method, share, budget);
      } else {
        ++done_;
      }
    }
  }

  void measure(const SuiteTask& task, const SuiteMethod& method, double share, long long budget) {
    json line = line_of(command(task.run, method, budget), task.name);
    if (line.is_null()) return;
    SuiteResult result{.task = task.name,
                       .method = method.name,
                       .group = task.group,
                       .share = share,
                       .budget = budget,
                       .process_bytes = line.value("peak_bytes", std::size_t{0}),
                       .solved = task.solved,
                       .saw = method.saw,
                       .error = line.value("error", "")};
    if (line.contains("result")) {
      const json& run = line["result"]["runs"][0];
      const bool text = evaluation_of(task) == "perplexity";
      const auto number = [&](const char* key) {
        return run.contains(key) && run[key].is_number() ? run[key].get<double>() : std::nan("");
      };
      const std::string score = !task.score.empty() ? task.score : text ? "perplexity" : "score";
      result.score = number(score.c_str());
      result.low = number((score + "_low").c_str());
      result.high = number((score + "_high").c_str());
      result.spelled = run.value("method", "");
      result.cache_type = run.value("cache_type", "");
      result.questions = run.value("questions", 0LL);
      result.cache_bytes = run.value("cache_bytes", std::size_t{0});
      result.ms_per_token = text ? 1000 / number("tokens_per_second") : number("tpot_ms");
      for (const json& file : run.value("files", json::array())) {
        result.file += (result.file.empty() ? "" : ", ") + file.value("name", "");
        result.file_bytes += file.value("bytes", std::size_t{0});
      }
    }
    if (said_.emplace(line["command"], task.name).second) remember(line, "suite", to_json(result));
    if (share >= 1) solved_[task.name] = is_solved(result);
    measured_.push_back(std::move(result));
    ++done_;
  }

  // Tasks with one command have a line each; the first has the result.
  void remember(json line, const char* key, const json& value) {
    if (line.contains("suite")) line.erase("result");
    line[key] = value;
    if (line.contains("result")) known_[line["command"]] = line;
    results_->append(line);
  }

  const MethodsFlags& flags_;
  bool chat_;
  std::vector<SuiteMethod> methods_;
  std::vector<SuiteTask> tasks_;
  std::vector<double> shares_;
  std::optional<ResultsFile> results_;
  std::map<std::string, json> known_;                   // lines by command
  std::set<std::pair<std::string, std::string>> said_;  // commands and tasks that have a line
  std::map<std::string, bool> solved_;
  std::vector<std::string> left_out_;  // tasks, and why
  std::string text_;
  std::vector<SuiteResult> measured_;
  Progress bar_{"methods", "runs"};
  long long done_ = 0, total_ = 0;
};

int run_methods(MethodsFlags& flags) {
  Suite suite = default_suite();
  if (!flags.suite.empty()) add_suite(suite, read_text(flags.suite, "the suite"), flags.suite);
  if (flags.list) {
    fmt::print("Tasks\n");
    for (const SuiteTask& task : suite.tasks) fmt::print("  {:<18}{}\n", task.name, task.about);
    fmt::print("\nMethods\n");
    for (const SuiteMethod& method : suite.methods)
      fmt::print("  {:<20}{}{}\n", method.name, method.method,
                 method.key_type.empty() ? "" : fmt::format(", cache {}", method.key_type));
    return kOk;
  }
  if (flags.length < 128) fail("--length {}: give at least 128 tokens", flags.length);
  const TextModel model = load_text_model(flags.model);
  const bool chat = model.vocabulary->has_chat_template();
  flags.model.path = model.model->path();
  return Bench(flags, suite, chat).run();
}

}  // namespace

void add_bench_methods(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<MethodsFlags>();
  CLI::App* command = bench.add_subcommand("methods", "Compare methods at equal bytes over tasks; resumable");
  command->footer(kMethodsFooter);
  command
      ->add_option("-m,--model", flags->model.path, "model file (GGUF), or name of a pulled model (`palimpsest list`)")
      ->type_name("FILE|NAME")
      ->default_str("$PALIMPSEST_MODEL, else the included default model");
  command->add_option("--methods", flags->methods, "methods, separated by semicolons (see --list)")
      ->type_name("NAME;...")
      ->default_str("all");
  command->add_option("--tasks", flags->tasks, "tasks, separated by semicolons (see --list)")
      ->type_name("NAME;...")
      ->default_str("all");
  command->add_option("--shares", flags->shares, "shares of the tokens that KeyDiff keeps; others have its bytes")
      ->type_name("1/N,...")
      ->capture_default_str();
  command->add_option("--length", flags->length, "tokens of a prompt and its answer")
      ->type_name("TOKENS")
      ->capture_default_str();
  command->add_option("--samples", flags->samples, "contexts of a task; most have 2 to 4 questions")
      ->type_name("N")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--text", flags->text, "text in which facts are hidden, and whose perplexity is measured")
      ->type_name("FILE")
      ->default_str("included stories");
  command
      ->add_option("--data", flags->data,
                   "folder with tasks/babi and tasks/longbench; tasks without their files are left out")
      ->type_name("FOLDER")
      ->envname("PALIMPSEST_SHARED");
  command->add_option("--suite", flags->suite, "JSON file of more tasks and methods (docs/add-to-the-benchmark.md)")
      ->type_name("FILE");
  command->add_option("--seed", flags->seed, "random seed of the tasks")->capture_default_str();
  command->add_option("-t,--threads", flags->threads, "threads of each run")
      ->type_name("N")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  command->add_option("-o,--out", flags->folder, "folder of the results and the report")
      ->type_name("FOLDER")
      ->capture_default_str();
  command->add_flag("--quick", flags->quick,
                    "five tasks of 8 contexts and seven methods: about 5 minutes with SmolLM2");
  command->add_flag("--list", flags->list, "list the tasks and methods");
  add_json_flag(*command, flags->json);
  command->callback([flags, &action] { action = [flags] { return run_methods(*flags); }; });
}

}  // namespace palimpsest::cli
