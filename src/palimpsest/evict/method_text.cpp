// Methods as text: one table of keys is used to parse, to print and for help.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "palimpsest/cache/formats/formats.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/parse.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

using Text = std::string_view;

// In the order of the enumerators.
constexpr auto kMechanismNames = [] {
  std::array<Text, kMechanisms.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kMechanisms[i].name;
  return names;
}();
constexpr std::array<Text, 3> kPositions = {"original", "cache", "auto"};
constexpr std::array<Text, 6> kRerotate = {"auto", "two-query", "fused", "cached-half", "recompute", "delta"};
constexpr std::array<Text, 4> kSchedules = {"step", "prompt", "prompt+step", "page"};
constexpr std::array<Text, 2> kJoin = {"class", "next"};
constexpr std::array<Text, 2> kPageScores = {"mean", "norms"};
constexpr std::array<Text, 2> kMergePositions = {"representative", "own"};
constexpr std::array<Text, 4> kSimilarities = {"product", "key", "value", "clipped"};
constexpr std::array<Text, 2> kMergedKeys = {"mean", "unit"};
constexpr auto kTypes = [] {
  std::array<Text, kKvFormats.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kKvFormats[i].name;
  return names;
}();
constexpr std::array<Text, 2> kEvict = {"before", "after"};
constexpr std::array<Text, 2> kSwitch = {"off", "on"};
constexpr std::array<Text, 2> kTruth = {"false", "true"};

struct Key {
  Text name, values, meaning;
  void (*set)(Method&, Text key, Text value);
  std::string (*get)(const Method&, Text key);
};

template <int Method::*Field, int Min>
constexpr auto set_count =
    [](Method& m, Text key, Text value) { m.*Field = static_cast<int>(parse_integer(value, key, Min, kMaxTokens)); };
template <int Method::*Field>
constexpr auto get_count = [](const Method& m, Text) { return std::to_string(m.*Field); };

template <auto Field, const auto& Names>
constexpr auto set_choice = [](Method& m, Text key, Text value) {
  auto& field = m.*Field;
  field = static_cast<std::remove_reference_t<decltype(field)>>(parse_choice(value, key, Names));
};
template <auto Field, const auto& Names>
constexpr auto get_choice =
    [](const Method& m, Text) { return std::string(Names[static_cast<std::size_t>(m.*Field)]); };

// Sorted, disjoint, not adjacent.
std::vector<PositionRange> merged(std::vector<PositionRange> pins) {
  std::ranges::sort(pins, {}, &PositionRange::first);
  std::vector<PositionRange> out;
  for (const PositionRange& pin : pins)
    if (!out.empty() && pin.first <= out.back().last)
      out.back().last = std::max(out.back().last, pin.last);
    else
      out.push_back(pin);
  if (out.size() > kMaxPins) fail("{} pinned spans of positions: at most {}", out.size(), kMaxPins);
  return out;
}

void set_policy(Method& m, Text, Text value) {
  std::vector<Text> names = {"none", kAutoPolicy};
  for (const auto& entry : policies()) names.push_back(entry.name);
  m.policy = names[parse_choice(value, "policy", names)];
}

template <Share Protection::*Field>
constexpr auto set_share = [](Method& m, Text key, Text value) {
  Share& share = m.protection.*Field;
  if (value == "half") {
    share = Protection::kHalf;
  } else if (value.find('.') == Text::npos) {
    share = static_cast<int>(parse_integer(value, key, 0, kMaxTokens));
  } else {
    double part = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), part);
    if (error != std::errc() || end != value.data() + value.size() || !(part > 0 && part < 1))
      fail("{} '{}' is neither a whole number nor a share of the budget: use 0 to {}, or 0.01 to 0.99", key, value,
           kMaxTokens);
    share = Share::of_budget(part);
  }
};
template <Share Protection::*Field>
constexpr auto get_share = [](const Method& m, Text) {
  const Share& share = m.protection.*Field;
  return share == Protection::kHalf ? "half"
         : share.part > 0           ? fmt::format("{}", share.part)
                                    : std::to_string(share.tokens);
};

PositionRange parse_span(Text key, Text span) {
  const auto dash = span.find('-');
  if (dash == Text::npos)
    fail("{} '{}' is no span of positions: use prompt, or FIRST-LAST, as in 0-99+200-219", key, span);
  const Position first = parse_integer(span.substr(0, dash), key, 0, kMaxTokens - 1);
  const Position last = parse_integer(span.substr(dash + 1), key, 0, kMaxTokens - 1);
  if (last < first) fail("{} '{}': the last position is before the first", key, span);
  return {first, last + 1};
}

// "0-99+200-219": first and last position of each span; "prompt" instead of a span.
void set_pins(Method& m, Text key, Text value) {
  m.protection.pins.clear();
  m.protection.prompt = false;
  if (value == "none") return;
  std::vector<PositionRange> pins;
  while (true) {
    const auto plus = value.find('+');
    const Text span = value.substr(0, plus);
    if (span == "prompt")
      m.protection.prompt = true;
    else
      pins.push_back(parse_span(key, span));
    if (plus == Text::npos) break;
    value.remove_prefix(plus + 1);
  }
  m.protection.pins = merged(std::move(pins));
}
std::string get_pins(const Method& m, Text) {
  std::string out = m.protection.prompt ? "prompt" : "";
  for (const PositionRange& pin : m.protection.pins)
    out += fmt::format("{}{}-{}", out.empty() ? "" : "+", pin.first, pin.last - 1);
  return out.empty() ? "none" : out;
}

void set_budget(Method& m, Text key, Text value) {
  m.budget_bytes = 0;
  if (value == "auto") {
    m.budget = kAutoBudget;
  } else if (value.ends_with('B')) {
    m.budget = kByteBudget;
    m.budget_bytes = parse_bytes(value, key);
  } else {
    m.budget = static_cast<int>(parse_integer(value, key, 0, kMaxTokens));
  }
}
std::string get_budget(const Method& m, Text) {
  return m.budget == kAutoBudget   ? "auto"
         : m.budget == kByteBudget ? spell_bytes(m.budget_bytes)
                                   : std::to_string(m.budget);
}

constexpr std::array kKeys = {
    Key{"policy", "NAME", "one of the list below, none, or auto: what the preset auto chooses", set_policy,
        [](const Method& m, Text) { return m.policy; }},
    Key{"budget", "TOKENS|256MiB", "max tokens kept, the new one included, or bytes; auto: the trained context",
        set_budget, get_budget},
    Key{"split", "HOW|FILE", "by head: uniform, pyramid, ada, duo, profile, auto, FILE (layer head 64, 1.5x)",
        [](Method& m, Text, Text value) { m.split = Split(value); },
        [](const Method& m, Text) { return m.split.text(); }},
    Key{"sinks", "TOKENS|0.1", "first tokens, never evicted; 0.1 or half: a share of the budget",
        set_share<&Protection::sinks>, get_share<&Protection::sinks>},
    Key{"recent", "TOKENS|0.1", "newest tokens, never evicted; 0.1 or half: a share of the budget",
        set_share<&Protection::recent>, get_share<&Protection::recent>},
    Key{"pin", "FIRST-LAST+...", "spans of positions, never evicted: 0-99+200-219; prompt; none", set_pins, get_pins},
    Key{"schedule", "WHEN", "step; prompt: once, at its end; prompt+step: from its end on; page: by page",
        set_choice<&Method::schedule, kSchedules>, get_choice<&Method::schedule, kSchedules>},
    Key{"prompt-max", "TOKENS|auto", "prompt+step: max tokens held of a prompt; 0: all; auto: the trained context",
        [](Method& m, Text key, Text value) {
          m.prompt_max = value == "auto" ? kAutoBudget : static_cast<int>(parse_integer(value, key, 0, kMaxTokens));
        },
        [](const Method& m, Text) { return m.prompt_max == kAutoBudget ? "auto" : std::to_string(m.prompt_max); }},
    Key{"every", "TOKENS", "evict when this many tokens exceed budget - slack (Lazy Pruning's R); 0: never",
        set_count<&Method::interval, 0>, get_count<&Method::interval>},
    Key{"slack", "TOKENS", "part of the budget that evictions leave free", set_count<&Method::headroom, 0>,
        get_count<&Method::headroom>},
    Key{"max-drop", "TOKENS", "max tokens per eviction after the prompt, which takes more steps; 0: unlimited",
        set_count<&Method::max_drop, 0>, get_count<&Method::max_drop>},
    Key{"overlap", "TOKENS", "victims that are kept until the next eviction, the newest",
        set_count<&Method::overlap, 0>, get_count<&Method::overlap>},
    Key{"refresh", "TOKENS", "victims that are kept until the next eviction, evenly spaced",
        set_count<&Method::spare, 0>, get_count<&Method::spare>},
    Key{"evict", "WHEN", "before a token's forward pass, with room for it; after: attends to one more",
        set_choice<&Method::evict_after, kEvict>, get_choice<&Method::evict_after, kEvict>},
    Key{"mechanism", "HOW", "in-place (victims' slots), shift, gather, block (pages), append, merge, match",
        set_choice<&Method::mechanism, kMechanismNames>, get_choice<&Method::mechanism, kMechanismNames>},
    Key{"page", "TOKENS|auto", "block, schedule page: tokens evicted at once, 8 n; auto: the cache's page",
        [](Method& m, Text key, Text value) {
          m.page = value == "auto" ? 0 : static_cast<int>(parse_integer(value, key, 1, kMaxTokens));
        },
        [](const Method& m, Text) { return m.page == 0 ? "auto" : std::to_string(m.page); }},
    Key{"page-score", "HOW", "block: mean of its tokens' scores; norms: of all values over of all keys",
        set_choice<&Method::page_score, kPageScores>, get_choice<&Method::page_score, kPageScores>},
    Key{"gamma", "1..4096", "merge: max tokens remembered, as a multiple of the budget; 1: no merging",
        set_count<&Method::gamma, 1>, get_count<&Method::gamma>},
    Key{"tau", "0..1", "merge: min similarity of a token to the one it is merged into; 1: no merging",
        [](Method& m, Text key, Text value) { m.tau = static_cast<float>(parse_real(value, key, 0, 1)); },
        [](const Method& m, Text) { return fmt::format("{}", m.tau); }},
    Key{"similarity", "OF", "merge: cosine of key, value, product of both; clipped: negative ones as 0",
        set_choice<&Method::similarity, kSimilarities>, get_choice<&Method::similarity, kSimilarities>},
    Key{"merged-key", "HOW", "merge: mean of unit keys, or unit: at its direction's full length",
        set_choice<&Method::merged_key, kMergedKeys>, get_choice<&Method::merged_key, kMergedKeys>},
    Key{"zero-class", "on|off", "merge: tokens merged into none count in gamma x budget (EMS)",
        set_choice<&Method::zero_class, kSwitch>, get_choice<&Method::zero_class, kSwitch>},
    Key{"join", "WHAT", "merge: class: into the most similar token (EMS); next: into the next 32 (CaM)",
        set_choice<&Method::join, kJoin>, get_choice<&Method::join, kJoin>},
    Key{"merge-position", "WHOSE", "merge: position of a merged key: its representative's or its own",
        set_choice<&Method::merge_position, kMergePositions>, get_choice<&Method::merge_position, kMergePositions>},
    Key{"references", "QUERIES", "match: the last queries, to whose outputs values and biases are fitted",
        [](Method& m, Text key, Text value) {
          m.references = static_cast<int>(parse_integer(value, key, 1, kMaxReferences));
        },
        [](const Method& m, Text) { return std::to_string(m.references); }},
    Key{"positions", "WHICH", "original: in the text; cache: rank in the cache; auto: original, then cache",
        set_choice<&Method::positions, kPositions>, get_choice<&Method::positions, kPositions>},
    Key{"rerotate", "HOW", "cache positions: auto, two-query, fused, cached-half, recompute or delta",
        set_choice<&Method::rerotate, kRerotate>, get_choice<&Method::rerotate, kRerotate>},
    Key{"recall", "PAGES", "pages of 16 evicted tokens that a query attends to: those that fit it best",
        set_count<&Method::recall, 0>, get_count<&Method::recall>},
    Key{"recall-every", "STEPS", "recall: steps of an answer from one choice of pages to the next",
        set_count<&Method::recall_every, 1>, get_count<&Method::recall_every>},
    Key{"recall-type", "TYPE", "recall: evicted tokens are held as f32, f16, bf16, q8_0, q4_0, q4, q3 or q2",
        set_choice<&Method::recall_type, kTypes>, get_choice<&Method::recall_type, kTypes>},
    Key{"recall-max", "TOKENS", "recall: max evicted tokens held of each head; then the oldest go",
        set_count<&Method::recall_max, 16>, get_count<&Method::recall_max>},
    Key{"recall-heads", "0..1", "recall: the part of the heads that recall, those of the greatest shares",
        [](Method& m, Text key, Text value) { m.recall_heads = parse_real(value, key, 0, 1); },
        [](const Method& m, Text) { return fmt::format("{}", m.recall_heads); }},
    Key{"lossless", "true|false", "true: this cache only drafts, a cache of all tokens verifies: the text of full",
        set_choice<&Method::lossless, kTruth>, get_choice<&Method::lossless, kTruth>},
    Key{"scorer", "auto|FILE", "of a policy made for one model; auto: NAME.scorer, .kvzap, ... by NAME.gguf",
        [](Method& m, Text, Text value) { m.scorer = value; }, [](const Method& m, Text) { return m.scorer; }},
    Key{"cache", "on|off", "off: baseline that recomputes the last `budget` tokens for every token",
        set_choice<&Method::cache, kSwitch>, get_choice<&Method::cache, kSwitch>},
};

// ... and the options of policies.
std::vector<Key> all_keys() {
  std::vector<Key> keys(kKeys.begin(), kKeys.end());
  for (const OptionText& option : policy_options())
    keys.push_back({option.name, option.values, option.meaning,
                    [](Method& m, Text key, Text value) { set_policy_option(m.of_policy, m.policy, key, value); },
                    [](const Method& m, Text key) {
                      const auto found = m.of_policy.find(key);
                      return found == m.of_policy.end() ? "auto" : found->second;
                    }});
  return keys;
}

Key key_named(Text name) {
  const std::vector<Key> keys = all_keys();
  std::vector<Text> names;
  for (const Key& key : keys) names.push_back(key.name);
  return keys[parse_choice(name, "method option", names)];
}

std::string changes_from(const Method& preset, const Method& m) {
  std::string out;
  for (const Key& key : all_keys()) {
    const std::string value = key.get(m, key.name);
    if (value != key.get(preset, key.name)) out += fmt::format("{}{}={}", out.empty() ? "" : ",", key.name, value);
  }
  return out;
}

}  // namespace

void set_option(Method& method, Text key, Text value) {
  if (key == "places") {  // the name until session files of format 1; also in those
    key = "merge-position";
    if (value == "centre") value = "representative";
  }
  const Key found = key_named(key);
  found.set(method, found.name, value);
}

void add_pins(Method& method, std::span<const PositionRange> pins) {
  if (method.policy == "none") return;  // it keeps all tokens
  std::vector<PositionRange> all = method.protection.pins;
  for (const PositionRange& pin : pins)
    if (!pin.empty()) all.push_back(pin);
  method.protection.pins = merged(std::move(all));
}

void pin_prompt(Method& method, Position tokens) {
  if (!method.protection.prompt) return;
  method.protection.prompt = false;
  const PositionRange prompt{0, tokens};
  add_pins(method, {&prompt, 1});
}

std::string get_option(const Method& method, Text key) {
  return key_named(key).get(method, key);
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
  std::string out;
  for (const Key& key : all_keys())
    out += fmt::format("{}{}={}", out.empty() ? m.name + ":" : ",", key.name, key.get(m, key.name));
  return out;
}

std::string spell_short(const Method& m) {
  const auto row = std::ranges::find(methods(), m.name, &MethodRow::name);
  if (row == methods().end()) return spell_out(m);
  const std::string changes = changes_from(row->preset, m);
  return changes.empty() ? m.name : m.name + ":" + changes;
}

std::string spell_changes(const Method& m) {
  return changes_from(Method{}, m);
}

std::string spell_protection(const Method& m) {
  if (!m.evicts()) return "";
  const bool uneven = m.split != Split::kUniform && m.split != Split::kAuto && m.protection.recent.part > 0;
  const std::string recent = uneven ? fmt::format("the newest {} of each head's budget", get_option(m, "recent"))
                                    : fmt::format("the newest {}", m.recent());
  const int sinks = m.protection.sinks.of(m.budget);
  Position pinned = 0;
  for (const PositionRange& pin : m.protection.pins) pinned += pin.last - pin.first;
  std::string out = sinks == 0 ? "" : sinks == 1 ? "1 sink" : fmt::format("{} sinks", sinks);
  if (pinned > 0) out += fmt::format("{}{} pinned", out.empty() ? "" : m.recent() == 0 ? " and " : ", ", pinned);
  if (m.recent() > 0) out += fmt::format("{}{}", out.empty() ? "" : " and ", recent);
  return out.empty() ? "none" : out;
}

std::vector<MethodKey> method_keys() {
  std::vector<MethodKey> keys;
  for (const Key& key : all_keys()) {
    const std::vector<Text> owners = policies_with_option(key.name);  // of all policies: none
    const std::string of = owners.empty() ? "" : fmt::format("{}: ", fmt::join(owners, ", "));
    keys.push_back({std::string(key.name), std::string(key.values), of + std::string(key.meaning)});
  }
  return keys;
}

}  // namespace palimpsest
