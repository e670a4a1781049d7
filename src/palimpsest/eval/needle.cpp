#include "palimpsest/eval/needle.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>

#include "palimpsest/core/error.h"
#include "palimpsest/core/parse.h"
#include "palimpsest/eval/data.h"

namespace palimpsest {
namespace {

using nlohmann::json;

struct Planted {
  std::string needle, question, answer, value, correction = {};
};

std::string filled(std::string text, const std::map<std::string, std::string>& words) {
  for (const auto& [name, word] : words) {
    const std::string placeholder = "{" + name + "}";
    for (auto at = text.find(placeholder); at != std::string::npos; at = text.find(placeholder, at + word.size()))
      text.replace(at, placeholder.size(), word);
  }
  return text;
}

std::string uuid(Draw& draw) {
  std::string out;
  for (int i = 0; i < 32; ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) out += '-';
    out += "0123456789abcdef"[draw.below(16)];
  }
  return out;
}

// Draws needles. No two agree in all words other than the value; values are distinct while unused ones are left.
class Planter {
 public:
  Planter(const NeedleKind& kind, const Haystack& haystack, Draw& draw)
      : kind_(kind), haystack_(haystack), draw_(draw) {}

  Planted plant(std::size_t variant) {
    constexpr int kTries = 1000;
    const NeedleVariant& v = kind_.variants[variant];
    for (int i = 0; i < kTries; ++i) {
      std::map<std::string, std::string> words;
      for (const auto& each : v.words) words[each.name] = word(each);
      std::string key = std::to_string(variant);
      for (const auto& [name, word] : words)
        if (name != "value") key += "\n" + word;
      const std::string& value = words.at("value");
      if (keys_.contains(key) || (values_.contains(value) && i < kTries / 2)) continue;
      keys_.insert(key);
      values_.insert(value);
      Planted out{filled(v.needle, words), filled(v.question, words), filled(v.answer, words), value};
      if (!v.corrected.empty()) correct(out, v, words);
      return out;
    }
    fail("kind '{}': its lists of words are too short for so many different needles", kind_.name);
  }
  std::size_t any() { return static_cast<std::size_t>(draw_.below(kind_.variants.size())); }
  std::size_t any_but(std::size_t variant) {
    if (kind_.variants.size() == 1) return 0;
    const std::size_t other = static_cast<std::size_t>(draw_.below(kind_.variants.size() - 1));
    return other + (other >= variant ? 1 : 0);
  }

 private:
  void correct(Planted& planted, const NeedleVariant& v, std::map<std::string, std::string> words) {
    const auto source = std::ranges::find(v.words, "value", &NeedleVariant::Words::name);
    for (int i = 0; i < 1000 && words["value"] == planted.value; ++i) words["value"] = word(*source);
    planted.value = words["value"];
    planted.correction = filled(v.corrected, words);
  }
  std::string word(const NeedleVariant::Words& words) {
    if (!words.list.empty()) return draw_.one_of(words.list);
    if (words.special == "uuid") return uuid(draw_);
    if (words.special == "word") return draw_.one_of(haystack_.words());
    return std::to_string(words.low +
                          static_cast<long long>(draw_.below(static_cast<std::uint64_t>(words.high - words.low + 1))));
  }

  const NeedleKind& kind_;
  const Haystack& haystack_;
  Draw& draw_;
  std::set<std::string> keys_, values_;
};

NeedleVariant::Words parse_words(const std::string& name, const json& from, const std::string& where) {
  NeedleVariant::Words words{name, {}, 0, -1, {}};
  if (from.is_array()) {
    words.list = from.get<std::vector<std::string>>();
    if (words.list.empty()) fail("{}: its list '{}' is empty", where, name);
    return words;
  }
  const std::string text = from.get<std::string>();
  if (text == "uuid" || text == "word") {
    words.special = text;
    return words;
  }
  const auto dash = text.find('-');
  if (dash == std::string::npos)
    fail("{}: words '{}' are \"{}\": give a list, a range \"10-99\", \"uuid\" or \"word\"", where, name, text);
  constexpr long long kMax = 1'000'000'000'000;
  words.low = parse_integer(text.substr(0, dash), name, 0, kMax);
  words.high = parse_integer(text.substr(dash + 1), name, words.low, kMax);
  return words;
}

NeedleKind parse_kind(const std::string& name, const json& from, const std::string& where) {
  NeedleKind kind;
  kind.name = name;
  kind.about = from.value("about", "");
  kind.intro = from.value("intro", "");
  kind.unit = from.value("unit", kind.unit);
  kind.reply = from.value("reply", "");
  kind.haystack = from.value("haystack", "");
  kind.spread = from.value("spread", 0);
  kind.same = from.value("same", 0);
  kind.other = from.value("other", 0);
  kind.tokens = from.value("tokens", kind.tokens);
  kind.fill = from.value("fill", false);
  kind.ask_all = from.value("ask-all", false);
  if (kind.unit.find("{text}") == std::string::npos) fail("{}: its unit has no {{text}}", where);
  if (kind.spread < 0 || kind.same < 0 || kind.other < 0 || kind.tokens < 1) fail("{}: a count is below 0", where);
  for (const json& each : from.at("variants")) {
    NeedleVariant& v = kind.variants.emplace_back();
    v.needle = each.at("needle").get<std::string>();
    v.question = each.at("question").get<std::string>();
    v.answer = each.value("answer", "");
    v.corrected = each.value("corrected", "");
    for (const auto& [word, source] : each.at("words").items()) v.words.push_back(parse_words(word, source, where));
    if (!each.at("words").contains("value") || v.needle.find("{value}") == std::string::npos)
      fail("{}: a needle without a {{value}} cannot be asked for", where);
    if (v.question.empty()) fail("{}: a variant's question is empty", where);
  }
  if (kind.variants.empty()) fail("{}: it has no variants", where);
  return kind;
}

}  // namespace

std::vector<NeedleKind> parse_needle_kinds(std::string_view text, const std::string& file) {
  std::vector<NeedleKind> kinds;
  try {
    const json all = json::parse(text);
    if (!all.is_object()) fail("{}: not an object of kinds of needles", file);
    for (const auto& [name, kind] : all.items())
      kinds.push_back(parse_kind(name, kind, fmt::format("{}: kind '{}'", file, name)));
  } catch (const json::exception& error) {
    fail("{}: {}", file, error.what());
  }
  return kinds;
}

std::vector<NeedleKind> needle_kinds() {
  std::vector<NeedleKind> kinds;
  for (const char* file : {"facts.json", "needles.json"})
    std::ranges::move(parse_needle_kinds(eval_data(file), file), std::back_inserter(kinds));
  return kinds;
}

const NeedleKind& needle_kind(std::span<const NeedleKind> kinds, std::string_view name) {
  std::vector<std::string_view> names;
  for (const NeedleKind& kind : kinds) names.emplace_back(kind.name);
  const auto at = std::ranges::find(names.rbegin(), names.rend(), name);
  if (at == names.rend()) fail("unknown kind of needle '{}': use {}", name, fmt::join(names, ", "));
  return kinds[static_cast<std::size_t>(names.rend() - at - 1)];
}

NeedlePrompt make_needle(const NeedleKind& kind, const NeedleSpec& spec, const Haystack& haystack,
                         const Vocabulary& vocabulary, Draw& draw) {
  Planter planter(kind, haystack, draw);
  const std::size_t variant = planter.any();
  const Planted target = planter.plant(variant);
  std::vector<Planted> beside = {target}, spread;
  for (int i = 0; i < kind.same; ++i) beside.push_back(planter.plant(variant));
  NeedlePrompt prompt;
  const auto ask = [&](std::span<const Planted> needles) {
    for (const Planted& each : needles) {
      if (prompt.questions.size() >= static_cast<std::size_t>(std::max(1, spec.questions))) return;
      prompt.questions.push_back(each.question);
      prompt.starts.push_back(each.answer);
      prompt.answers.push_back(each.value);
    }
  };
  if (!kind.ask_all) ask(beside);
  for (int i = 0; i < kind.other; ++i) beside.push_back(planter.plant(planter.any_but(variant)));
  for (int i = 0; i < kind.spread; ++i) {
    const std::size_t next = (variant + 1 + static_cast<std::size_t>(i)) % kind.variants.size();
    spread.push_back(planter.plant(kind.ask_all ? next : planter.any()));
  }
  if (kind.ask_all) {
    ask(beside);
    ask(spread);
  }
  draw.shuffle(beside);
  std::string block;
  for (const Planted& each : beside) block += each.needle;

  // As many units of the haystack as fit, from a random start.
  const bool paragraphs = kind.unit.ends_with('\n');
  std::optional<Haystack> repeated;
  if (!kind.haystack.empty()) repeated.emplace(kind.haystack + "\n\n" + kind.haystack, kind.name);
  const Haystack& source = repeated ? *repeated : haystack;
  const auto& texts = paragraphs ? source.paragraphs() : source.sentences();
  const std::size_t start = static_cast<std::size_t>(draw.below(texts.size()));
  std::vector<std::string> units;
  const auto unit = [&](std::size_t i) -> const std::string& {
    while (units.size() <= i)
      units.push_back(kind.fill ? planter.plant(planter.any()).needle
                                : filled(kind.unit, {{"text", texts[(start + units.size()) % texts.size()]}}));
    return units[i];
  };
  std::vector<double> depths;  // depths of the spread needles
  for (std::size_t i = 0; i < spread.size(); ++i) {
    const double away = static_cast<double>(i + 1) / static_cast<double>(spread.size() + 1);
    depths.push_back(kind.ask_all ? std::fmod(spec.depth + away, 1.0) : static_cast<double>(draw.below(1000)) / 1000);
  }
  // Corrections: half way from their needle to the end.
  std::vector<std::pair<double, std::string>> corrections;
  for (const Planted& each : beside)
    if (!each.correction.empty()) corrections.emplace_back((1 + spec.depth) / 2, each.correction);
  for (std::size_t i = 0; i < spread.size(); ++i)
    if (!spread[i].correction.empty()) corrections.emplace_back((1 + depths[i]) / 2, spread[i].correction);
  const auto context = [&](long long n) {
    std::size_t bytes = 0, so_far = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) bytes += unit(i).size();
    std::string out = kind.intro;
    bool planted = false;
    std::vector<bool> done(spread.size()), corrected(corrections.size());
    for (std::size_t i = 0; i <= static_cast<std::size_t>(n); ++i) {
      const double at = bytes == 0 ? 1 : static_cast<double>(so_far) / static_cast<double>(bytes);
      const bool last = i == static_cast<std::size_t>(n);
      for (std::size_t s = 0; s < spread.size(); ++s)
        if (!done[s] && (at >= depths[s] || last)) out += spread[s].needle, done[s] = true;
      if (!planted && (at >= spec.depth || last)) out += block, planted = true;
      for (std::size_t k = 0; k < corrections.size(); ++k)
        if (!corrected[k] && (at >= corrections[k].first || last)) out += corrections[k].second, corrected[k] = true;
      if (last) break;
      out += unit(i);
      so_far += unit(i).size();
    }
    return out;
  };
  std::string longest;  // the end of a prompt
  for (std::size_t i = 0; i < prompt.questions.size(); ++i) {
    const std::string end = prompt.questions[i] + prompt.starts[i];
    if (end.size() > longest.size()) longest = end;
  }
  constexpr long long kMaxUnits = 1 << 20;
  const bool finite = kind.haystack.empty() && !kind.fill;
  const long long max = finite ? static_cast<long long>(texts.size()) : kMaxUnits;
  const long long n = max_that_fit(vocabulary, max, spec.length - kind.tokens,
                                   [&](long long count) { return context(count) + longest; });
  if (n < 0) fail("kind '{}' does not fit into {} tokens: ask for a greater length", kind.name, spec.length);
  if (finite && n == max)
    fail("{}: the whole text is shorter than {} tokens: name more with --haystack, or ask for a smaller length",
         source.name(), spec.length);
  prompt.context = context(n);
  prompt.tokens = static_cast<long long>(vocabulary.tokenize(prompt.context + longest, true, false).size());
  return prompt;
}

bool contains_word(std::string_view answer, std::string_view value) {
  const auto word = [](char each) {
    return (each >= '0' && each <= '9') || (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z');
  };
  for (auto at = answer.find(value); at != std::string_view::npos; at = answer.find(value, at + 1)) {
    const std::size_t end = at + value.size();
    if ((at == 0 || !word(answer[at - 1])) && (end == answer.size() || !word(answer[end]))) return true;
  }
  return value.empty();
}

}  // namespace palimpsest
