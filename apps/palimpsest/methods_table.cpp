#include "palimpsest/methods_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/evict/auto.h"
#include "palimpsest/help.h"
#include "palimpsest/info_cache.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

using Json = nlohmann::ordered_json;

// The signals of a policy: its cost besides the budget.
std::string signals_text(const Method& method) {
  if (method.policy == "none") return "nothing";
  const std::string policy = method.policy == kAutoPolicy ? std::string(kPolicyAtPromptEnd) : method.policy;
  const Signals signals = make_policy(policy, method.of_policy)->signals();
  if (signals.positions_only()) return "positions";
  std::vector<std::string> parts;
  if (signals.repeat)
    parts.push_back("repetition of the prompt");
  else if (signals.attention_window)
    parts.push_back(fmt::format("attention of {}{}", signals.attention_window->queries, signals.sums() ? "+all" : ""));
  else if (signals.weights())
    parts.push_back("attention");
  if (signals.insert_score) parts.push_back("new kv");
  const std::string which = signals.score_on_insert ? "new " : "all ";
  if (signals.keys && signals.values)
    parts.push_back(which + "keys, values");
  else if (signals.rows())
    parts.push_back(which + (signals.keys ? "keys" : "values"));
  if (signals.query_moments) parts.push_back("queries");
  return fmt::format("{}", fmt::join(parts, ", "));
}

// When tokens are evicted; `prompt`: once, after the prompt is read.
std::string schedule_text(const Method& m) {
  if (!m.evicts()) return "never";
  if (m.schedule == Schedule::kPrompt) return "prompt";
  const bool by_page = m.how().whole_pages || m.schedule == Schedule::kPage;
  const std::string step = by_page           ? "each page"
                           : m.interval == 1 ? "every token"
                                             : fmt::format("every {} tokens", m.interval);
  if (m.schedule != Schedule::kPromptStep) return step;
  return m.interval > 1 && !by_page ? fmt::format("prompt, every {}", m.interval) : "prompt, " + step;
}

Json memory_of(const Method& method, const Hyperparameters& hyper) {
  SessionOptions options;
  options.method = method;
  const Json terms = cache_terms(options, hyper, std::nullopt, 1);
  return {{"bytes", terms["writing"]["bytes"]}, {"tokens", terms["writing"]["tokens"]}, {"bounded", terms["bounded"]}};
}

// Throws Error if the model lacks a file that the method needs.
void check_files(const Method& method, const Model& model) {
  SessionOptions options;
  options.method = method;
  PlanTarget target = plan_target(model.hyper(), options);
  target.model = [&] { return policy_model(model, method); };
  const MethodPlan plan(method, std::move(target));
}

std::string memory_text(const Json& row) {
  if (!row.contains("memory")) return "-";
  const Json& memory = row["memory"];
  const std::string bytes = human_bytes(memory["bytes"].get<std::size_t>());
  return memory["bounded"].get<bool>() ? bytes : bytes + " +";
}

}  // namespace

Json methods_table(const std::optional<std::string>& budget, const Model* model) {
  Json rows = Json::array();
  for (const MethodRow& preset : methods()) {
    Method method = preset.preset;
    if (budget && method.evicts()) set_option(method, "budget", *budget);
    Json row = {{"name", preset.name},
                {"paper", preset.paper},
                {"summary", preset.summary},
                {"method", spell_out(method)},
                {"changes", spell_changes(method)},
                {"policy", method.policy},
                {"needs", signals_text(method)},
                {"acts", schedule_text(method)},
                {"mechanism", method.evicts() && method.cache ? get_option(method, "mechanism") : "-"},
                {"positions", get_option(method, "positions")}};
    try {
      validate(method);
      if (model != nullptr) {
        row["memory"] = memory_of(method, model->hyper());
        if (!model->path().empty()) check_files(method, *model);
      }
    } catch (const Error& error) {  // budget too small, positions that this model does not support, or a missing file
      row["error"] = error.what();
    }
    rows.push_back(row);
  }
  return rows;
}

void print_methods_table(const Json& rows) {
  const bool with_memory =
      std::ranges::any_of(rows, [](const Json& row) { return row.contains("memory") || row.contains("error"); });
  std::vector<std::array<std::string, 7>> lines = {
      {"method", "paper", "needs", "acts", "mechanism", "positions", with_memory ? "memory" : ""}};
  for (const Json& row : rows)
    lines.push_back({row["name"], row["paper"], row["needs"], row["acts"], row["mechanism"], row["positions"],
                     with_memory ? memory_text(row) : ""});
  std::array<std::size_t, 7> width{};
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) width[i] = std::max(width[i], line[i].size());
  for (const auto& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i) text += fmt::format("{:<{}}  ", line[i], width[i]);
    fmt::print("{}\n", text.substr(0, text.find_last_not_of(' ') + 1));
  }
  for (const Json& row : rows)
    if (row.contains("error")) fmt::print("{}: {}\n", row["name"].get<std::string>(), row["error"].get<std::string>());
}

}  // namespace palimpsest::cli
