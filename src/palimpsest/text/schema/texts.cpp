#include "palimpsest/text/schema/texts.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace palimpsest::schema {
namespace {

constexpr std::size_t kMaxProduct = 2000;  // states of a pattern with a max length

#define PALIMPSEST_DATE                                                                                   \
  "[12][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|" \
  "1[0-9]|2[0-8]))"
#define PALIMPSEST_TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define PALIMPSEST_OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define PALIMPSEST_HOST "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
#define PALIMPSEST_URI "([A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"

// Each is a part of the format: what is written has the format.
constexpr std::pair<std::string_view, const char*> kFormats[] = {
    {"date", "^" PALIMPSEST_DATE "$"},
    {"time", "^" PALIMPSEST_TIME "$"},
    {"date-time", "^" PALIMPSEST_DATE "T" PALIMPSEST_TIME "$"},
    {"duration",
     "^P([1-9][0-9]{0,3}[YMWD]|T[1-9][0-9]{0,3}[HMS]|[1-9][0-9]{0,3}DT[1-9][0-9]{0,3}[HMS]|T[1-9][0-9]{0,3}H[1-9][0-9]?"
     "M)$"},
    {"email", "^[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@" PALIMPSEST_HOST "\\.[A-Za-z]{2,24}$"},
    {"hostname", "^" PALIMPSEST_HOST "$"},
    {"ipv4", "^" PALIMPSEST_OCTET "(\\." PALIMPSEST_OCTET "){3}$"},
    {"ipv6", "^(([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|::[0-9a-fA-F]{1,4})$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"uri", "^[a-zA-Z][a-zA-Z0-9+.-]*:" PALIMPSEST_URI "+(#" PALIMPSEST_URI "*)?$"},
};

#undef PALIMPSEST_DATE
#undef PALIMPSEST_TIME
#undef PALIMPSEST_OCTET
#undef PALIMPSEST_HOST
#undef PALIMPSEST_URI

const char* regex_of_format(const std::string& name) {
  for (const auto& [known, regex] : kFormats)
    if (known == name) return regex;
  return nullptr;
}

Dfa with_lengths(const Dfa& dfa, std::size_t min, std::size_t max, Work& work) {
  const Lengths lengths = lengths_of(dfa, work);
  if (lengths.min >= min && lengths.max <= max) return dfa;
  if (max != kUnbounded)  // fewer are allowed than the schema does, if the automaton would be too large
    max = std::min(max, std::max({min, lengths.min, kMaxProduct / (dfa.states() + 1)}));
  return combine(dfa, texts_of_length(min, max, work), Combine::kAnd, work);
}

}  // namespace

Text simplified(std::shared_ptr<const Dfa> dfa) {
  Text out{.dfa = dfa};
  if (dfa->empty()) return out;
  CharSet set;
  std::optional<std::size_t> first;
  std::size_t length = 0;
  std::int32_t state = 0;
  while (true) {
    if (dfa->accepts[static_cast<std::size_t>(state)]) {
      if (!first) first = length;
    } else if (first) {
      return out;
    }
    std::int32_t next = Dfa::kDead;
    std::vector<Interval> characters;
    for (std::uint32_t c = 0; c < dfa->alphabet.count; ++c) {
      const std::int32_t to = dfa->step(state, c);
      if (to < 0) continue;
      if (next >= 0 && next != to) return out;
      next = to;
      const CharSet more = dfa->alphabet.characters_of(c);
      characters.insert(characters.end(), more.begin(), more.end());
    }
    if (next < 0) return {.set = set, .min = first.value_or(length), .max = length};
    const CharSet own = char_set(std::move(characters));
    if (length > 0 && own != set) return out;
    set = own;
    if (next <= state) {  // numbers are those of a search from the start: a loop
      if (next == state && first) return {.set = set, .min = *first, .max = kUnbounded};
      return out;
    }
    state = next;
    ++length;
  }
}

Dfa dfa_of(const Text& text, Session& session) {
  if (text.dfa != nullptr) return *text.dfa;
  Dfa lengths = texts_of_length(text.min, text.max, session.work);
  if (text.set == all_characters()) return lengths;
  Nfa nfa;
  const std::uint32_t start = nfa.add();
  nfa.states[start].set = static_cast<std::int32_t>(nfa.set(text.set));
  nfa.states[start].to = start;
  return combine(lengths, determinize(nfa, start, start, false, true, session.work), Combine::kAnd, session.work);
}

namespace {

Text made_text(const Branch& branch, Session& session) {
  Work& work = session.work;
  std::optional<Dfa> dfa;
  const auto meet = [&](const Dfa& more, Combine how) { dfa = combine(dfa ? *dfa : any_text(), more, how, work); };
  for (const Pattern& each : branch.patterns) {
    const auto before = dfa;
    try {
      meet(session.regexes.get(each.text), each.negative ? Combine::kWithout : Combine::kAnd);
    } catch (const TooComplex& error) {
      session.drop(each.schema, "pattern", error.what());
      dfa = before;
    }
  }
  std::vector<std::string> others;
  for (const Json* value : branch.not_values)
    if (value->is_string()) others.push_back(value->get<std::string>());
  if (!others.empty()) meet(texts_of(others, work), Combine::kWithout);
  const std::size_t min = branch.min_length, max = branch.max_length;
  if (max < min) return {.min = min, .max = max};
  for (const std::string& each : branch.formats) {  // an annotation: only where it contradicts nothing
    const char* const regex = regex_of_format(each);
    if (regex == nullptr) continue;
    try {
      Dfa both = combine(dfa ? *dfa : any_text(), session.regexes.get(regex), Combine::kAnd, work);
      if (!with_lengths(both, min, max, work).empty()) dfa = std::move(both);
    } catch (const TooComplex&) {
    }
  }
  if (!dfa) return {.min = min, .max = max};
  Text simple = simplified(std::make_shared<const Dfa>(minimized(*dfa, work)));
  if (simple.dfa == nullptr) {
    simple.min = std::max(simple.min, min);
    simple.max = std::min(simple.max, max);
    return simple;
  }
  try {
    return {.dfa = std::make_shared<const Dfa>(with_lengths(*simple.dfa, min, max, work))};
  } catch (const TooComplex& error) {
    session.drop(branch.lengths_owner, branch.min_length > 0 ? "minLength" : "maxLength", error.what());
    return simple;
  }
}

}  // namespace

Text text_of(const Branch& branch, Session& session) {
  std::string key = fmt::format("{} {}", branch.min_length, branch.max_length);
  for (const Pattern& each : branch.patterns)
    key += fmt::format("\n{}{}:{}", each.negative, each.text.size(), each.text);
  for (const std::string& each : branch.formats) key += fmt::format("\nf{}:{}", each.size(), each);
  for (const Json* each : branch.not_values)
    if (each->is_string()) key += "\nn" + each->dump(-1, ' ', false, Json::error_handler_t::replace);
  session.work.spend(key.size() / 16 + 1);
  const auto known = session.texts.find(key);
  if (known != session.texts.end()) return known->second;
  return session.texts.insert_or_assign(key, made_text(branch, session)).first->second;
}

}  // namespace palimpsest::schema
