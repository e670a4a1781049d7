#include "palimpsest/eval/suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "palimpsest/core/error.h"
#include "palimpsest/core/nearest_name.h"
#include "palimpsest/eval/data.h"

namespace palimpsest {
namespace {

using nlohmann::json;

constexpr std::pair<SuiteGroup, const char*> kGroups[] = {
    {SuiteGroup::kUnknown, "unknown"}, {SuiteGroup::kKnown, "known"},     {SuiteGroup::kInstructions, "instructions"},
    {SuiteGroup::kWork, "work"},       {SuiteGroup::kWritten, "written"}, {SuiteGroup::kText, "text"},
    {SuiteGroup::kShown, "shown"}};

SuiteGroup group_of(const std::string& name) {
  const auto found = std::ranges::find(kGroups, name, [](const auto& each) { return std::string(each.second); });
  if (found == std::end(kGroups)) fail("suite: there is no group '{}'", name);
  return found->first;
}

const char* name_of(SuiteGroup group) {
  return std::ranges::find(kGroups, group, [](const auto& each) { return each.first; })->second;
}

template <typename Named>
std::vector<std::string> names_of(const std::vector<Named>& all) {
  std::vector<std::string> names;
  for (const Named& each : all) names.push_back(each.name);
  return names;
}

template <typename Named>
const Named* find_named(const std::vector<Named>& all, const std::string& name) {
  const auto at = std::ranges::find(all, name, &Named::name);
  return at == all.end() ? nullptr : &*at;
}

template <typename Named>
void put_named(std::vector<Named>& all, Named one) {
  const auto known = std::ranges::find(all, one.name, &Named::name);
  if (known == all.end())
    all.push_back(std::move(one));
  else
    *known = std::move(one);
}

json finite_or_null(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}

double suite_number(const json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_number() ? at->get<double>() : std::nan("");
}

// Ranks from 1; equal values share their mean rank.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0, last; first < order.size(); first = last) {
    for (last = first + 1; last < order.size() && values[order[last]] == values[order[first]];) ++last;
    for (std::size_t i = first; i < last; ++i) ranks[order[i]] = static_cast<double>(first + last + 1) / 2;
  }
  return ranks;
}

}  // namespace

void add_suite(Suite& suite, std::string_view text, const std::string& file) {
  try {
    const json data = json::parse(text);
    for (const json& each : data.value("tasks", json::array()))
      put_named<SuiteTask>(suite.tasks, {.name = each.at("name"),
                                         .about = each.value("about", ""),
                                         .group = group_of(each.at("group")),
                                         .run = each.at("run"),
                                         .score = each.value("score", ""),
                                         .solved = each.value("solved", kSolved),
                                         .chat = each.value("chat", false),
                                         .quick = each.value("quick", false)});
    for (const json& each : data.value("methods", json::array()))
      put_named<SuiteMethod>(suite.methods, {.name = each.at("name"),
                                             .method = each.at("method"),
                                             .key_type = each.value("key_type", ""),
                                             .value_type = each.value("value_type", ""),
                                             .saw = each.value("saw", ""),
                                             .quick = each.value("quick", false)});
  } catch (const json::exception& error) {
    fail("{}: {}", file, error.what());
  }
  for (const SuiteTask& task : suite.tasks)
    if (!task.run.starts_with("eval "))
      fail("{}: task '{}' runs '{}': give a subcommand of eval", file, task.name, task.run);
}

Suite default_suite() {
  Suite suite;
  add_suite(suite, eval_data("suite.json"), "suite.json");
  return suite;
}

std::vector<SuiteTask> chosen_tasks(const Suite& suite, std::span<const std::string> names) {
  if (names.empty()) return suite.tasks;
  std::vector<SuiteTask> out;
  for (const std::string& name : names) {
    const SuiteTask* const task = find_named(suite.tasks, name);
    const std::vector<std::string> known = names_of(suite.tasks);
    if (task == nullptr)
      fail("there is no task '{}'{}; tasks: {}", name, did_you_mean(name, known), fmt::join(known, "; "));
    out.push_back(*task);
  }
  return out;
}

std::vector<SuiteMethod> chosen_methods(const Suite& suite, std::span<const std::string> names) {
  if (names.empty()) return suite.methods;
  std::vector<SuiteMethod> out;
  for (const std::string& name : names) {
    const SuiteMethod* const method = find_named(suite.methods, name);
    out.push_back(method != nullptr ? *method : SuiteMethod{.name = name, .method = name});
  }
  return out;
}

std::string filled_command(const std::string& run, const std::vector<std::pair<std::string, std::string>>& values) {
  std::string out;
  for (std::size_t at = 0; at < run.size();) {
    const auto open = run.find('{', at);
    out += run.substr(at, open - at);
    if (open == std::string::npos) break;
    const auto close = run.find('}', open);
    const std::string name = run.substr(open + 1, close == std::string::npos ? close : close - open - 1);
    const auto found = std::ranges::find(values, name, [](const auto& value) { return value.first; });
    if (close == std::string::npos || found == values.end())
      fail("suite: '{}' has an unknown placeholder {{{}}}", run, name);
    out += found->second;
    at = close + 1;
  }
  return out;
}

json to_json(const SuiteResult& r) {
  json out = {{"task", r.task},
              {"method", r.method},
              {"spelled", r.spelled},
              {"cache_type", r.cache_type},
              {"group", name_of(r.group)},
              {"share", r.share},
              {"budget", r.budget},
              {"score", finite_or_null(r.score)},
              {"low", finite_or_null(r.low)},
              {"high", finite_or_null(r.high)},
              {"questions", r.questions},
              {"cache_bytes", r.cache_bytes},
              {"process_bytes", r.process_bytes},
              {"ms_per_token", finite_or_null(r.ms_per_token)},
              {"solved", r.solved}};
  if (!r.file.empty()) out.update({{"file", r.file}, {"file_bytes", r.file_bytes}});
  if (!r.saw.empty()) out["saw"] = r.saw;
  if (!r.error.empty()) out["error"] = r.error;
  return out;
}

std::optional<SuiteResult> suite_result(const json& line) {
  const auto at = line.find("suite");
  if (at == line.end() || !at->is_object()) return std::nullopt;
  return SuiteResult{.task = at->value("task", ""),
                     .method = at->value("method", ""),
                     .spelled = at->value("spelled", ""),
                     .cache_type = at->value("cache_type", ""),
                     .group = group_of(at->value("group", "unknown")),
                     .share = at->value("share", 1.0),
                     .budget = at->value("budget", 0LL),
                     .score = suite_number(*at, "score"),
                     .low = suite_number(*at, "low"),
                     .high = suite_number(*at, "high"),
                     .questions = at->value("questions", 0LL),
                     .cache_bytes = at->value("cache_bytes", std::size_t{0}),
                     .process_bytes = at->value("process_bytes", std::size_t{0}),
                     .ms_per_token = suite_number(*at, "ms_per_token"),
                     .solved = at->value("solved", kSolved),
                     .file = at->value("file", ""),
                     .file_bytes = at->value("file_bytes", std::size_t{0}),
                     .saw = at->value("saw", ""),
                     .error = at->value("error", "")};
}

bool is_solved(const SuiteResult& full) {
  return full.error.empty() &&
         (full.group == SuiteGroup::kText || full.group == SuiteGroup::kShown || full.score >= full.solved);
}

double rank_correlation(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size() || a.size() < 3) return std::nan("");
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double mean = static_cast<double>(x.size() + 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : std::nan("");
}

}  // namespace palimpsest
