// Methods as text: one table of keys serves reading, spelling out and help.
#include <array>
#include <span>

#include "palimpsest/core/error.h"
#include "palimpsest/core/parse.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

using Text = std::string_view;
constexpr int kMost = 1 << 30;  // of any count of tokens

// In the order of the enumerators.
constexpr std::array<Text, 5> kMechanisms = {"in-place", "shift", "gather", "block", "append"};
constexpr std::array<Text, 2> kPositions = {"original", "cache"};
constexpr std::array<Text, 6> kRerotate = {"auto", "two-query", "fused", "cached-half", "recompute", "delta"};
constexpr std::array<Text, 4> kSchedules = {"step", "prompt", "prompt+step", "page"};
constexpr std::array<Text, 2> kSwitch = {"off", "on"};

struct Key {
  Text name, values, meaning;
  void (*set)(Method&, Text key, Text value);
  std::string (*get)(const Method&);
};

template <int Method::*Field, int Least>
constexpr auto set_count =
    [](Method& m, Text key, Text value) { m.*Field = static_cast<int>(parse_integer(value, key, Least, kMost)); };
template <int Method::*Field>
constexpr auto get_count = [](const Method& m) { return std::to_string(m.*Field); };

template <auto Field, const auto& Names>
constexpr auto set_choice = [](Method& m, Text key, Text value) {
  auto& field = m.*Field;
  field = static_cast<std::remove_reference_t<decltype(field)>>(parse_choice(value, key, Names));
};
template <auto Field, const auto& Names>
constexpr auto get_choice = [](const Method& m) { return std::string(Names[static_cast<std::size_t>(m.*Field)]); };

void set_policy(Method& m, Text, Text value) {
  std::vector<Text> names = {"none"};
  for (const auto& entry : policies()) names.push_back(entry.name);
  m.policy = names[parse_choice(value, "policy", names)];
}

void set_recent(Method& m, Text key, Text value) {
  m.protection.recent = value == "half" ? Protection::kHalf : static_cast<int>(parse_integer(value, key, 0, kMost));
}

constexpr std::array kKeys = {
    Key{"policy", "NAME", "who leaves: a policy below, or none", set_policy, [](const Method& m) { return m.policy; }},
    Key{"budget", "TOKENS", "tokens that a step attends to, the new one included; 0: no bound",
        set_count<&Method::budget, 0>, get_count<&Method::budget>},
    Key{"split", "uniform|FILE", "how layers and heads share it: a file has lines 'layer head budget'",
        [](Method& m, Text, Text value) { m.split = value; }, [](const Method& m) { return m.split; }},
    Key{"sinks", "TOKENS", "the first tokens of a sequence that never leave",
        [](Method& m, Text key, Text value) {
          m.protection.sinks = static_cast<int>(parse_integer(value, key, 0, kMost));
        },
        [](const Method& m) { return std::to_string(m.protection.sinks); }},
    Key{"recent", "TOKENS|half", "the newest tokens that never leave; half: of the budget", set_recent,
        [](const Method& m) {
          return m.protection.recent == Protection::kHalf ? "half" : std::to_string(m.protection.recent);
        }},
    Key{"schedule", "WHEN", "step; prompt: once, after it; prompt+step: from its end on; page: a page's worth",
        set_choice<&Method::schedule, kSchedules>, get_choice<&Method::schedule, kSchedules>},
    Key{"every", "TOKENS", "evict only when that many tokens are too many (Lazy Pruning's R)",
        set_count<&Method::every, 1>, get_count<&Method::every>},
    Key{"slack", "TOKENS", "an eviction leaves so many tokens less than the budget", set_count<&Method::slack, 0>,
        get_count<&Method::slack>},
    Key{"max-drop", "TOKENS", "an eviction drops so many at most; 0: no bound", set_count<&Method::max_drop, 0>,
        get_count<&Method::max_drop>},
    Key{"refresh", "TOKENS", "so many of an eviction's victims, evenly spaced, stay until the next",
        set_count<&Method::refresh, 0>, get_count<&Method::refresh>},
    Key{"mechanism", "HOW", "in-place (into victims' slots), shift, gather, block (whole pages leave) or append",
        set_choice<&Method::mechanism, kMechanisms>, get_choice<&Method::mechanism, kMechanisms>},
    Key{"positions", "WHICH", "original: a key keeps its place; cache: places are counted in the cache",
        set_choice<&Method::positions, kPositions>, get_choice<&Method::positions, kPositions>},
    Key{"rerotate", "HOW", "of cache positions: auto, two-query, fused, cached-half, recompute or delta",
        set_choice<&Method::rerotate, kRerotate>, get_choice<&Method::rerotate, kRerotate>},
    Key{"cache", "on|off", "off: a baseline that reads the last `budget` tokens anew for every token",
        set_choice<&Method::cache, kSwitch>, get_choice<&Method::cache, kSwitch>},
};

const Key& key_named(Text name) {
  std::array<Text, kKeys.size()> names;
  for (std::size_t i = 0; i < kKeys.size(); ++i) names[i] = kKeys[i].name;
  return kKeys[parse_choice(name, "method option", names)];
}

}  // namespace

void set_option(Method& method, Text key, Text value) {
  const Key& found = key_named(key);
  found.set(method, found.name, value);
}

std::string get_option(const Method& method, Text key) {
  return key_named(key).get(method);
}

Method parse_method(Text text) {
  const auto colon = text.find(':');
  std::vector<Text> names;
  for (const auto& row : methods()) names.push_back(row.name);
  Method method = methods()[parse_choice(text.substr(0, colon), "method", names)].preset;
  if (colon == Text::npos) return method;
  if (colon + 1 == text.size()) fail("method '{}' ends with a colon: use NAME or NAME:key=value,key=value", text);
  for (const auto& [key, value] : parse_pairs(text.substr(colon + 1), fmt::format("method '{}'", text)))
    set_option(method, key, value);
  return method;
}

std::string spell_out(const Method& m) {
  std::string out = m.name;
  for (const Key& key : kKeys) {
    out += &key == kKeys.data() ? ':' : ',';
    out += key.name;
    out += '=';
    out += key.get(m);
  }
  return out;
}

std::string spell_short(const Method& m) {
  std::string out;
  for (const Key& key : kKeys) {
    const std::string value = key.get(m);
    if (value == key.get(Method{})) continue;
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", key.name, value);
  }
  return out;
}

std::vector<MethodKey> method_keys() {
  std::vector<MethodKey> keys;
  for (const Key& key : kKeys) keys.push_back({key.name, key.values, key.meaning});
  return keys;
}

}  // namespace palimpsest
