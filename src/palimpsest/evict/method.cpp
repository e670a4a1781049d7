#include "palimpsest/evict/method.h"

#include <algorithm>
#include <array>

#include "palimpsest/core/error.h"
#include "palimpsest/core/parse.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

using Names = std::span<const std::string_view>;

// In the order of the enumerators.
constexpr std::array<std::string_view, 2> kMechanisms = {"in-place", "shift"};
constexpr std::array<std::string_view, 2> kPositions = {"original", "cache"};
constexpr std::array<std::string_view, 3> kRerotate = {"auto", "two-query", "late"};
constexpr std::array<std::string_view, 8> kKeys = {"budget", "sinks",     "recent",    "every",
                                                   "policy", "mechanism", "positions", "rerotate"};
constexpr int kMost = 1 << 30;  // of any count of tokens

template <typename Enum>
Enum choice(std::string_view text, std::string_view what, Names names) {
  return static_cast<Enum>(parse_choice(text, what, names));
}

int count(std::string_view text, std::string_view what, int least) {
  return static_cast<int>(parse_integer(text, what, least, kMost));
}

std::string known_policy(std::string_view name) {
  std::vector<std::string_view> names = {"none"};
  for (const auto& entry : policies()) names.push_back(entry.name);
  return std::string(names[parse_choice(name, "policy", names)]);
}

}  // namespace

const std::vector<MethodRow>& methods() {
  static const std::vector<MethodRow> table = {
      {"full", "-", "nothing leaves: memory grows with every token", {}},
      {"streaming",
       "arXiv 2309.17453",
       "4 sinks + the newest tokens, positions inside the cache; a budget of 256 unless you say otherwise",
       {.name = "streaming",
        .policy = "recent",
        .protection = {.sinks = 4},
        .budget = 256,
        .positions = Positions::kCache}},
  };
  return table;
}

void set_option(Method& method, std::string_view key, std::string_view value) {
  switch (parse_choice(key, "method option", kKeys)) {
    case 0:
      method.budget = count(value, key, 0);
      break;
    case 1:
      method.protection.sinks = count(value, key, 0);
      break;
    case 2:
      method.protection.recent = count(value, key, 0);
      break;
    case 3:
      method.every = count(value, key, 1);
      break;
    case 4:
      method.policy = known_policy(value);
      break;
    case 5:
      method.mechanism = choice<Mechanism>(value, key, kMechanisms);
      break;
    case 6:
      method.positions = choice<Positions>(value, key, kPositions);
      break;
    case 7:
      method.rerotate = choice<Rerotate>(value, key, kRerotate);
      break;
  }
}

Method parse_method(std::string_view text) {
  const auto colon = text.find(':');
  std::vector<std::string_view> names;
  for (const auto& row : methods()) names.push_back(row.name);
  Method method = methods()[parse_choice(text.substr(0, colon), "method", names)].preset;
  if (colon == std::string_view::npos) return method;
  if (colon + 1 == text.size()) fail("method '{}' ends with a colon: use NAME or NAME:key=value,key=value", text);
  for (const auto& [key, value] : parse_pairs(text.substr(colon + 1), fmt::format("method '{}'", text)))
    set_option(method, key, value);
  return method;
}

void validate(const Method& m) {
  if (m.policy == "none") {
    if (m.budget != 0)
      fail("budget {} with policy none: nothing would ever leave; choose a policy or leave the budget out", m.budget);
    if (m.protection != Protection{})
      fail("sinks or recent with policy none: nothing ever leaves; choose a policy or leave them out");
    if (m.every != 1) fail("every {} with policy none: nothing ever leaves; choose a policy or leave it out", m.every);
  } else {
    const auto [sinks, recent] = m.protection;
    const long long least = static_cast<long long>(sinks) + recent + 1;
    if (m.budget == 0) fail("policy {} needs a budget: give one of at least {}", m.policy, least);
    if (m.budget < least)
      fail("budget {} is below sinks {} + recent {} + 1: raise it to at least {} or protect fewer tokens", m.budget,
           sinks, recent, least);
    if (m.budget + static_cast<long long>(m.every) > kMost)
      fail("budget {} + every {} is out of range: at most {} together", m.budget, m.every, kMost);
  }
  if (m.rerotate != Rerotate::kAuto && m.positions != Positions::kCache)
    fail("rerotate {} with original positions: keys are never rotated again; use positions=cache or rerotate=auto",
         kRerotate[static_cast<std::size_t>(m.rerotate)]);
  if (m.rerotate == Rerotate::kTwoQuery && !m.windowed())
    fail("rerotate two-query with policy {}: it holds for sinks + window (policy recent) only; use late", m.policy);
}

std::string spell_out(const Method& m) {
  return fmt::format(
      "{}:policy={},budget={},sinks={},recent={},every={},mechanism={},positions={},rerotate={}", m.name, m.policy,
      m.budget, m.protection.sinks, m.protection.recent, m.every, kMechanisms[static_cast<std::size_t>(m.mechanism)],
      kPositions[static_cast<std::size_t>(m.positions)], kRerotate[static_cast<std::size_t>(m.rerotate)]);
}

}  // namespace palimpsest
