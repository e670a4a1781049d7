// The tasks and methods of `palimpsest bench methods` (eval/data/suite.json), and its report: methods compared at equal
// bytes of their caches, over tasks that the full cache solves.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace palimpsest {

// unknown: the question is not known while the text is read. known: it ends the prompt. instructions: of a system
// prompt. work: code and tool calls. written: what a long answer repeats. text: perplexity. shown: in no mean.
enum class SuiteGroup { kUnknown, kKnown, kInstructions, kWork, kWritten, kText, kShown };

inline constexpr double kSolved = 0.5;

struct SuiteTask {
  std::string name, about;
  SuiteGroup group = SuiteGroup::kUnknown;
  // A command with {length}, {half}, {twice}, {total} (one and a half lengths), {samples}, {seed}, {text} (a file) and
  // {data} (a folder).
  std::string run;
  std::string score = {};   // the field of the result; empty: "score", of texts "perplexity"
  double solved = kSolved;  // the least score of the full cache with which the task says something about methods
  bool chat = false;        // needs a chat template
  bool quick = false;
};

struct SuiteMethod {
  std::string name, method;                    // without a budget
  std::string key_type = {}, value_type = {};  // empty: f16
  std::string saw = {};                        // tasks whose generator it was chosen by
  bool quick = false;
};

struct Suite {
  std::vector<SuiteTask> tasks;
  std::vector<SuiteMethod> methods;
};
Suite default_suite();
// Adds the tasks and methods of a text in the format of suite.json; one with a known name replaces that. Throws Error
// that names the file.
void add_suite(Suite& suite, std::string_view text, const std::string& file);
// The named ones in their order; empty: all. Throws Error with the nearest name.
std::vector<SuiteTask> chosen_tasks(const Suite& suite, std::span<const std::string> names);
// A name that is not the suite's is the text of a method.
std::vector<SuiteMethod> chosen_methods(const Suite& suite, std::span<const std::string> names);

// The text with its placeholders filled in. Throws Error for an unknown one.
std::string filled_command(const std::string& run, const std::vector<std::pair<std::string, std::string>>& values);

// One result: a method at one share of the bytes on one task.
struct SuiteResult {
  std::string task, method;
  std::string spelled = {}, cache_type = {};  // the method with all keys, its budget among them; "f16", "q8_0/q4"
  SuiteGroup group = SuiteGroup::kUnknown;
  double share = 1;                     // of the tokens; 1: the full cache
  long long budget = 0;                 // tokens; 0: all
  double score = 0, low = 0, high = 0;  // a share of right answers, or perplexity
  long long questions = 0;
  std::size_t cache_bytes = 0, process_bytes = 0;
  double ms_per_token = 0;
  double solved = kSolved;  // of the task
  std::string file = {};    // files beside the model that it read, "a, b"; empty: none
  std::size_t file_bytes = 0;
  std::string saw = {};    // SuiteMethod::saw
  std::string error = {};  // not measured: why
};
nlohmann::json to_json(const SuiteResult& result);
std::optional<SuiteResult> suite_result(const nlohmann::json& line);  // nullopt: another kind of line

bool is_solved(const SuiteResult& full);

// Spearman's rank correlation; NaN for fewer than three pairs.
double rank_correlation(std::span<const double> a, std::span<const double> b);

struct SuiteAbout {
  std::string model, machine, version;
  long long length = 0;
  std::vector<std::string> left_out = {};  // "longbench (needs tasks/longbench)"
};
// A table for each share, methods by their mean over the solved tasks; then what orders by one group of tasks say of
// the others.
std::string suite_markdown(std::span<const SuiteResult> results, const SuiteAbout& about);
std::string suite_html(std::span<const SuiteResult> results, const SuiteAbout& about);

}  // namespace palimpsest
