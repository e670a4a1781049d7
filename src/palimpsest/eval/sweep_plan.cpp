#include "palimpsest/eval/sweep_plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

using nlohmann::ordered_json;  // keeps placeholders in the order of the file
using Placeholders = std::vector<std::pair<std::string, std::vector<std::string>>>;

std::string text_of(const ordered_json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  fail("{}: {} is neither a text nor a number", where, value.dump());
}

void add_placeholders(Placeholders& placeholders, const ordered_json& each, const std::string& where) {
  for (const auto& [name, values] : each.items()) {
    std::vector<std::string> texts;
    if (values.is_array())
      for (const ordered_json& value : values) texts.push_back(text_of(value, where));
    else
      texts.push_back(text_of(values, where));
    if (texts.empty()) fail("{}: the placeholder '{}' has no values", where, name);
    std::erase_if(placeholders,
                  [&](const auto& known) { return known.first == name; });  // a run's values replace common ones
    placeholders.emplace_back(name, std::move(texts));
  }
}

// Replaces the first placeholder; returns its name, or "" if there is none.
std::string replace_placeholder(std::string& text, const std::map<std::string, std::string>& values,
                                const std::string& where) {
  const auto open = text.find('{');
  if (open == std::string::npos) return "";
  const auto close = text.find('}', open);
  const std::string name = text.substr(open + 1, close == std::string::npos ? close : close - open - 1);
  const auto found = values.find(name);
  if (close == std::string::npos || found == values.end())
    fail("{}: there are no values for '{{{}}}': add them under \"each\"", where, name);
  text.replace(open, close - open + 1, found->second);
  return name;
}

void expand(std::vector<SweepRun>& runs, std::set<std::string>& known, const std::vector<std::string>& words,
            const Placeholders& placeholders, const std::string& where) {
  constexpr std::size_t kMax = 1'000'000;
  std::size_t total = 1;
  for (const auto& [name, values] : placeholders) {
    total *= values.size();
    if (total > kMax) fail("{}: more than {} combinations", where, kMax);
  }
  for (std::size_t i = 0; i < total; ++i) {
    std::map<std::string, std::string> values;
    std::size_t rest = i;
    for (auto each = placeholders.rbegin(); each != placeholders.rend(); ++each) {
      values[each->first] = each->second[rest % each->second.size()];
      rest /= each->second.size();
    }
    SweepRun run;
    for (std::string word : words) {
      constexpr int kDeep = 100;
      int depth = 0;
      for (std::string name; !(name = replace_placeholder(word, values, where)).empty();) {
        run.placeholders[name] = values[name];
        if (++depth > kDeep) fail("{}: the placeholders of '{}' are circular", where, name);
      }
      run.words.push_back(word);
    }
    if (known.insert(run.command()).second) runs.push_back(std::move(run));
  }
}

}  // namespace

std::string SweepRun::command() const {
  std::string out = "palimpsest";
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_of(" '\"\\$*?|&;<>(){}[]~`!#\n\t") == std::string::npos;
    out += " ";
    if (plain) {
      out += word;
      continue;
    }
    out += "'";
    for (const char each : word) out += each == '\'' ? std::string("'\\''") : std::string(1, each);
    out += "'";
  }
  return out;
}

std::vector<SweepRun> parse_sweep(std::string_view text, const std::string& file) {
  std::vector<SweepRun> runs;
  std::set<std::string> known;
  try {
    const ordered_json plan = ordered_json::parse(text);
    if (!plan.is_object() || !plan.contains("runs")) fail("{}: no \"runs\" in it: it is no sweep", file);
    Placeholders shared;
    if (plan.contains("each")) add_placeholders(shared, plan["each"], file);
    int number = 0;
    for (const ordered_json& each : plan.at("runs")) {
      const std::string where = fmt::format("{}: run {}", file, ++number);
      Placeholders placeholders = shared;
      if (each.contains("each")) add_placeholders(placeholders, each["each"], where);
      std::vector<std::string> words;
      const ordered_json& run = each.at("run");
      if (run.is_string()) {
        std::istringstream split(run.get<std::string>());
        for (std::string word; split >> word;) words.push_back(word);
      } else {
        for (const ordered_json& word : run) words.push_back(text_of(word, where));
      }
      if (words.empty() || (words[0] != "eval" && words[0] != "bench"))
        fail("{}: a run is a command, `eval ...` or `bench ...`", where);
      expand(runs, known, words, placeholders, where);
    }
  } catch (const ordered_json::exception& error) {
    fail("{}: {}", file, error.what());
  }
  if (runs.empty()) fail("{}: not a single run in it", file);
  return runs;
}

}  // namespace palimpsest
