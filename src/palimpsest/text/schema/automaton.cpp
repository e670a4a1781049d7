#include "palimpsest/text/schema/automaton.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace palimpsest::schema {
namespace {

constexpr std::uint32_t kLast = 0x10FFFF, kSurrogates = 0xD800, kAfterSurrogates = 0xE000;

// Removes states that cannot be reached, or cannot lead to an accepting one.
Dfa trimmed(const Dfa& dfa) {
  const std::size_t states = dfa.states(), classes = dfa.alphabet.count;
  std::vector<std::vector<std::uint32_t>> sources(states);
  for (std::size_t i = 0; i < states * classes; ++i)
    if (dfa.next[i] >= 0)
      sources[static_cast<std::size_t>(dfa.next[i])].push_back(static_cast<std::uint32_t>(i / classes));
  std::vector<bool> alive(dfa.accepts);
  std::vector<std::uint32_t> open;
  for (std::size_t i = 0; i < states; ++i)
    if (alive[i]) open.push_back(static_cast<std::uint32_t>(i));
  while (!open.empty()) {
    const std::uint32_t state = open.back();
    open.pop_back();
    for (const std::uint32_t source : sources[state])
      if (!alive[source]) {
        alive[source] = true;
        open.push_back(source);
      }
  }
  Dfa out{.alphabet = dfa.alphabet, .next = {}, .accepts = {}};
  if (states == 0 || !alive[0]) return out;
  std::vector<std::int32_t> number(states, Dfa::kDead);
  std::vector<std::uint32_t> order = {0};
  number[0] = 0;
  for (std::size_t i = 0; i < order.size(); ++i)
    for (std::size_t c = 0; c < classes; ++c) {
      const std::int32_t to = dfa.next[order[i] * classes + c];
      if (to < 0 || !alive[static_cast<std::size_t>(to)] || number[static_cast<std::size_t>(to)] >= 0) continue;
      number[static_cast<std::size_t>(to)] = static_cast<std::int32_t>(order.size());
      order.push_back(static_cast<std::uint32_t>(to));
    }
  out.next.assign(order.size() * classes, Dfa::kDead);
  for (std::size_t i = 0; i < order.size(); ++i) {
    out.accepts.push_back(dfa.accepts[order[i]]);
    for (std::size_t c = 0; c < classes; ++c) {
      const std::int32_t to = dfa.next[order[i] * classes + c];
      if (to >= 0) out.next[i * classes + c] = number[static_cast<std::size_t>(to)];
    }
  }
  return out;
}

// The classes of two alphabets, and which class of each they are in.
struct Joined {
  Alphabet alphabet;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> parts;
};

Joined joined(const Alphabet& a, const Alphabet& b) {
  Joined out{.alphabet = {.starts = {}, .classes = {}, .count = 0}, .parts = {}};
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> known;
  std::size_t i = 0, j = 0;
  while (i < a.starts.size() || j < b.starts.size()) {
    const std::uint32_t next_a = i < a.starts.size() ? a.starts[i] : ~0U;
    const std::uint32_t next_b = j < b.starts.size() ? b.starts[j] : ~0U;
    const std::uint32_t start = std::min(next_a, next_b);
    if (next_a == start) ++i;
    if (next_b == start) ++j;
    const std::pair both{a.classes[i - 1], b.classes[j - 1]};
    const auto [at, made] = known.try_emplace(both, static_cast<std::uint32_t>(out.parts.size()));
    if (made) out.parts.push_back(both);
    if (!out.alphabet.classes.empty() && out.alphabet.classes.back() == at->second) continue;
    out.alphabet.starts.push_back(start);
    out.alphabet.classes.push_back(at->second);
  }
  out.alphabet.count = static_cast<std::uint32_t>(out.parts.size());
  return out;
}

}  // namespace

CharSet char_set(std::vector<Interval> intervals) {
  std::vector<Interval> parts;
  for (const Interval& each : intervals) {
    const std::uint32_t last = std::min(each.last, kLast);
    if (each.first < kSurrogates && each.first <= last) parts.push_back({each.first, std::min(last, kSurrogates - 1)});
    if (last >= kAfterSurrogates && each.first <= last) parts.push_back({std::max(each.first, kAfterSurrogates), last});
  }
  std::ranges::sort(parts, {}, &Interval::first);
  CharSet out;
  for (const Interval& each : parts) {
    if (!out.empty() && each.first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, each.last);
    else
      out.push_back(each);
  }
  return out;
}

const CharSet& all_characters() {
  static const CharSet all = char_set({{0, kLast}});
  return all;
}

CharSet complement_of(const CharSet& set) {
  std::vector<Interval> out;
  std::uint32_t next = 0;
  for (const Interval& each : set) {
    if (each.first > next) out.push_back({next, each.first - 1});
    next = each.last + 1;
  }
  if (next <= kLast) out.push_back({next, kLast});
  return char_set(std::move(out));
}

CharSet union_of(const CharSet& a, const CharSet& b) {
  std::vector<Interval> both(a);
  both.insert(both.end(), b.begin(), b.end());
  return char_set(std::move(both));
}

CharSet intersection_of(const CharSet& a, const CharSet& b) {
  CharSet out;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::uint32_t first = std::max(a[i].first, b[j].first), last = std::min(a[i].last, b[j].last);
    if (first <= last) out.push_back({first, last});
    if (a[i].last < b[j].last)
      ++i;
    else
      ++j;
  }
  return out;
}

bool contains(const CharSet& set, std::uint32_t character) {
  const auto at = std::ranges::lower_bound(set, character, {}, &Interval::last);
  return at != set.end() && at->first <= character;
}

const CharSet& word_characters() {
  static const CharSet word = char_set({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return word;
}

std::vector<std::uint32_t> code_points(std::string_view utf8) {
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < utf8.size();) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    std::uint32_t value = length == 1 ? lead : lead & (0x7FU >> length);
    for (std::size_t k = 1; k < length && i + k < utf8.size(); ++k)
      value = (value << 6) | (static_cast<unsigned char>(utf8[i + k]) & 0x3FU);
    out.push_back(value);
    i += length;
  }
  return out;
}

std::uint32_t Alphabet::class_of(std::uint32_t character) const {
  const auto at = std::ranges::upper_bound(starts, character);
  return classes[static_cast<std::size_t>(at - starts.begin()) - 1];
}

CharSet Alphabet::characters_of(std::uint32_t index) const {
  std::vector<Interval> out;
  for (std::size_t i = 0; i < starts.size(); ++i)
    if (classes[i] == index) out.push_back({starts[i], i + 1 < starts.size() ? starts[i + 1] - 1 : kLast});
  return char_set(std::move(out));
}

Alphabet alphabet_of(const std::vector<CharSet>& sets, Work& work) {
  struct Change {
    std::uint32_t at;
    std::uint32_t set;
    bool operator<(const Change& other) const { return std::tie(at, set) < std::tie(other.at, other.set); }
  };
  std::vector<Change> changes;
  for (std::size_t i = 0; i < sets.size(); ++i)
    for (const Interval& each : sets[i]) {
      changes.push_back({each.first, static_cast<std::uint32_t>(i)});
      // Surrogates are in the class of the character before them, so that no class consists of them alone.
      const std::uint32_t end = each.last + 1 == kSurrogates ? kAfterSurrogates : each.last + 1;
      changes.push_back({end, static_cast<std::uint32_t>(i)});
    }
  work.spend(changes.size() * 4 + changes.size() * (sets.size() / 16 + 1));
  std::ranges::sort(changes, [](const Change& a, const Change& b) { return a < b; });
  Alphabet out{.starts = {}, .classes = {}, .count = 0};
  std::vector<bool> inside(sets.size());
  std::map<std::vector<bool>, std::uint32_t> known;
  std::size_t i = 0;
  for (std::uint32_t at = 0; at <= kLast;) {
    for (; i < changes.size() && changes[i].at == at; ++i) inside[changes[i].set] = !inside[changes[i].set];
    const auto [found, made] = known.try_emplace(inside, out.count);
    if (made) ++out.count;
    if (out.classes.empty() || out.classes.back() != found->second) {
      out.starts.push_back(at);
      out.classes.push_back(found->second);
    }
    at = i < changes.size() ? changes[i].at : kLast + 1;
  }
  return out;
}

bool Dfa::matches(std::string_view utf8) const {
  if (empty()) return false;
  std::int32_t state = 0;
  for (const std::uint32_t c : code_points(utf8)) {
    state = step(state, alphabet.class_of(c));
    if (state < 0) return false;
  }
  return accepts[static_cast<std::size_t>(state)];
}

Dfa combine(const Dfa& a, const Dfa& b, Combine how, Work& work) {
  const Joined both = joined(a.alphabet, b.alphabet);
  Dfa out{.alphabet = both.alphabet, .next = {}, .accepts = {}};
  const auto accepting = [](const Dfa& dfa, std::int32_t state) {
    return state >= 0 && dfa.accepts[static_cast<std::size_t>(state)];
  };
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> known;
  std::vector<std::pair<std::int32_t, std::int32_t>> order;
  const auto state_of = [&](std::int32_t x, std::int32_t y) {
    const bool dead = how == Combine::kAnd ? x < 0 || y < 0 : how == Combine::kOr ? x < 0 && y < 0 : x < 0;
    if (dead) return Dfa::kDead;
    const auto [at, made] = known.try_emplace({x, y}, static_cast<std::int32_t>(order.size()));
    if (made) {
      if (order.size() >= kMaxStates) throw TooComplex("it needs too many states: make it simpler");
      order.emplace_back(x, y);
    }
    return at->second;
  };
  if (state_of(a.empty() ? Dfa::kDead : 0, b.empty() ? Dfa::kDead : 0) == Dfa::kDead) return out;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto [x, y] = order[i];
    const bool in_a = accepting(a, x), in_b = accepting(b, y);
    out.accepts.push_back(how == Combine::kAnd ? in_a && in_b : how == Combine::kOr ? in_a || in_b : in_a && !in_b);
    work.spend(4 * both.parts.size());
    for (const auto& [ca, cb] : both.parts)
      out.next.push_back(state_of(x < 0 ? x : a.step(x, ca), y < 0 ? y : b.step(y, cb)));
  }
  return trimmed(out);
}

Dfa any_text() {
  return {.next = {0}, .accepts = {true}};
}

Dfa complement_of(const Dfa& a, Work& work) {
  return combine(any_text(), a, Combine::kWithout, work);
}

Dfa texts_of_length(std::size_t min, std::size_t max, Work& work) {
  const std::size_t last = max == kUnbounded ? min : max;
  if (last >= kMaxStates) throw TooComplex("the length needs too many states: make it smaller");
  Dfa out{.alphabet = any_text().alphabet, .next = {}, .accepts = {}};
  if (max < min) return out;
  work.spend(last + 1);
  for (std::size_t i = 0; i <= last; ++i) {
    out.accepts.push_back(i >= min);
    out.next.push_back(i < last ? static_cast<std::int32_t>(i + 1)
                                : (max == kUnbounded ? static_cast<std::int32_t>(i) : Dfa::kDead));
  }
  return out;
}

Dfa texts_of(const std::vector<std::string>& texts, Work& work) {
  Nfa nfa;
  const std::uint32_t start = nfa.add(), final = nfa.add();
  for (const std::string& text : texts) {
    work.spend(text.size() * 4 + 1);
    std::uint32_t at = nfa.add();
    nfa.link(start, at);
    for (const std::uint32_t c : code_points(text)) {
      const std::uint32_t to = nfa.add();
      nfa.states[at].set = static_cast<std::int32_t>(nfa.set(char_set({{c, c}})));
      nfa.states[at].to = to;
      at = to;
    }
    nfa.link(at, final);
  }
  return determinize(nfa, start, final, false, true, work);
}

Dfa minimized(Dfa dfa, Work& work) {
  constexpr std::size_t kSmall = 400;
  const std::size_t states = dfa.states(), classes = dfa.alphabet.count;
  if (states > kSmall || states == 0) return dfa;
  std::vector<std::int32_t> group(states);
  for (std::size_t i = 0; i < states; ++i) group[i] = dfa.accepts[i] ? 1 : 0;
  std::size_t groups = 0;
  while (true) {  // Moore
    work.spend(states * (classes + 4));
    std::map<std::vector<std::int32_t>, std::int32_t> known;
    std::vector<std::int32_t> finer(states);
    for (std::size_t i = 0; i < states; ++i) {
      std::vector<std::int32_t> key = {group[i]};
      for (std::size_t c = 0; c < classes; ++c) {
        const std::int32_t to = dfa.next[i * classes + c];
        key.push_back(to < 0 ? Dfa::kDead : group[static_cast<std::size_t>(to)]);
      }
      finer[i] = known.try_emplace(std::move(key), static_cast<std::int32_t>(known.size())).first->second;
    }
    group = std::move(finer);
    if (known.size() == groups) break;
    groups = known.size();
  }
  if (groups == states) return dfa;
  Dfa out{.alphabet = dfa.alphabet,
          .next = std::vector<std::int32_t>(groups * classes, Dfa::kDead),
          .accepts = std::vector<bool>(groups)};
  for (std::size_t i = 0; i < states; ++i) {  // state 0 has group 0
    const auto g = static_cast<std::size_t>(group[i]);
    out.accepts[g] = dfa.accepts[i];
    for (std::size_t c = 0; c < classes; ++c) {
      const std::int32_t to = dfa.next[i * classes + c];
      out.next[g * classes + c] = to < 0 ? Dfa::kDead : group[static_cast<std::size_t>(to)];
    }
  }
  return out;
}

Lengths lengths_of(const Dfa& dfa, Work& work) {
  // Breadth first for the shortest; the longest is unbounded with a cycle, as every state leads to an accepting one.
  const std::size_t states = dfa.states(), classes = dfa.alphabet.count;
  work.spend(states * (classes + 2));
  std::vector<std::size_t> depth(states, kUnbounded), incoming(states), longest(states);
  std::vector<std::size_t> order;
  Lengths out{.min = kUnbounded, .max = 0};
  if (states == 0) return out;
  depth[0] = 0;
  order.push_back(0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t state = order[i];
    if (dfa.accepts[state]) out.min = std::min(out.min, depth[state]);
    for (std::size_t c = 0; c < classes; ++c) {
      const std::int32_t to = dfa.next[state * classes + c];
      if (to < 0) continue;
      ++incoming[static_cast<std::size_t>(to)];
      if (depth[static_cast<std::size_t>(to)] != kUnbounded) continue;
      depth[static_cast<std::size_t>(to)] = depth[state] + 1;
      order.push_back(static_cast<std::size_t>(to));
    }
  }
  if (incoming[0] > 0) return {.min = out.min, .max = kUnbounded};
  std::vector<std::size_t> ready = {0};
  std::size_t done = 0;
  while (!ready.empty()) {
    const std::size_t state = ready.back();
    ready.pop_back();
    ++done;
    if (dfa.accepts[state]) out.max = std::max(out.max, longest[state]);
    for (std::size_t c = 0; c < classes; ++c) {
      const std::int32_t to = dfa.next[state * classes + c];
      if (to < 0) continue;
      const auto at = static_cast<std::size_t>(to);
      longest[at] = std::max(longest[at], longest[state] + 1);
      if (--incoming[at] == 0) ready.push_back(at);
    }
  }
  if (done < states) out.max = kUnbounded;
  return out;
}

std::uint32_t Nfa::set(CharSet characters) {
  for (std::size_t i = sets.size(); i > 0 && sets.size() - i < 64; --i)
    if (sets[i - 1] == characters) return static_cast<std::uint32_t>(i - 1);
  sets.push_back(std::move(characters));
  return static_cast<std::uint32_t>(sets.size() - 1);
}

Dfa determinize(const Nfa& nfa, std::uint32_t start, std::uint32_t final, bool rest, bool at_start, Work& work) {
  using Assertion = Nfa::Assertion;
  // What the next character must be: an assertion that was passed requires it.
  enum : std::uint32_t { kAny = 0, kWord = 1, kNoWord = 2, kNothing = 3 };  // kNoWord: or the end
  const bool boundaries = std::ranges::any_of(nfa.states, [](const Nfa::State& state) {
    return std::ranges::any_of(state.assertions, [](const auto& each) {
      return each.first == Assertion::kBoundary || each.first == Assertion::kNoBoundary;
    });
  });
  std::vector<CharSet> sets(nfa.sets);
  if (boundaries) sets.push_back(word_characters());
  Dfa out{.alphabet = alphabet_of(sets, work), .next = {}, .accepts = {}};
  const std::size_t classes = out.alphabet.count;
  std::vector<std::uint32_t> example(classes);
  for (std::size_t i = out.alphabet.starts.size(); i > 0; --i)
    example[out.alphabet.classes[i - 1]] = out.alphabet.starts[i - 1];
  work.spend(nfa.sets.size() * classes);
  std::vector<std::vector<std::uint32_t>> classes_of(nfa.sets.size());
  for (std::size_t s = 0; s < nfa.sets.size(); ++s)
    for (std::size_t c = 0; c < classes; ++c)
      if (contains(nfa.sets[s], example[c])) classes_of[s].push_back(static_cast<std::uint32_t>(c));
  std::vector<bool> is_word(classes);
  for (std::size_t c = 0; c < classes; ++c) is_word[c] = contains(word_characters(), example[c]);

  std::vector<std::uint32_t> visited(nfa.states.size() * 4);
  std::uint32_t round = 0;
  using Subset = std::vector<std::uint32_t>;  // elements: state * 4 + requirement; the last: whether a word precedes
  const auto close = [&](Subset open, bool begin, bool after_word) {
    ++round;
    Subset subset;
    for (const std::uint32_t each : open) visited[each] = round;
    while (!open.empty()) {
      const std::uint32_t each = open.back(), state = each / 4, needed = each % 4;
      open.pop_back();
      subset.push_back(each);
      const auto add = [&](std::uint32_t to, std::uint32_t requirement) {
        const std::uint32_t element = to * 4 + requirement;
        if (std::exchange(visited[element], round) != round) open.push_back(element);
      };
      work.spend(1 + nfa.states[state].epsilon.size());
      for (const std::uint32_t to : nfa.states[state].epsilon) add(to, needed);
      for (const auto& [assertion, to] : nfa.states[state].assertions) {
        if (assertion == Assertion::kBegin) {
          if (begin) add(to, needed);
          continue;
        }
        const std::uint32_t more = assertion == Assertion::kEnd                        ? kNothing
                                   : (assertion == Assertion::kBoundary) == after_word ? kNoWord
                                                                                       : kWord;
        if (needed == kAny || needed == more)
          add(to, more);
        else if (needed != kWord && more != kWord)
          add(to, kNothing);
      }
    }
    std::ranges::sort(subset);
    if (rest && std::ranges::binary_search(subset, final * 4 + kAny)) subset = {final * 4 + kAny};
    subset.push_back(boundaries && after_word ? 1 : 0);
    return subset;
  };

  std::map<Subset, std::int32_t> known;
  std::vector<const Subset*> order;
  const auto state_of = [&](Subset subset) {
    if (subset.size() == 1) return Dfa::kDead;
    work.spend(subset.size() + 16);
    const auto [at, made] = known.try_emplace(std::move(subset), static_cast<std::int32_t>(order.size()));
    if (made) {
      if (order.size() >= kMaxStates) throw TooComplex("it needs too many states: make it simpler");
      order.push_back(&at->first);
    }
    return at->second;
  };
  state_of(close({start * 4 + kAny}, at_start, false));
  std::vector<Subset> moved(classes);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Subset& subset = *order[i];
    for (Subset& each : moved) each.clear();
    bool accepting = false, ends = false;
    for (std::size_t k = 0; k + 1 < subset.size(); ++k) {
      const std::uint32_t state = subset[k] / 4, needed = subset[k] % 4;
      if (state == final) accepting = accepting || needed != kWord;
      if (state == final && rest && needed == kAny) ends = true;
      if (state == final && rest && needed != kNothing) {
        for (std::size_t c = 0; c < classes; ++c)
          if (needed == kAny || (needed == kWord) == is_word[c]) moved[c].push_back(final * 4 + kAny);
      }
      if (nfa.states[state].set < 0 || needed == kNothing) continue;
      const auto& reached = classes_of[static_cast<std::size_t>(nfa.states[state].set)];
      work.spend(reached.size() + 1);
      for (const std::uint32_t c : reached)
        if (needed == kAny || (needed == kWord) == is_word[c]) moved[c].push_back(nfa.states[state].to * 4 + kAny);
    }
    out.accepts.push_back(accepting);
    for (std::size_t c = 0; c < classes; ++c) {
      if (ends) {
        out.next.push_back(static_cast<std::int32_t>(i));
        continue;
      }
      std::ranges::sort(moved[c]);
      moved[c].erase(std::ranges::unique(moved[c]).begin(), moved[c].end());
      out.next.push_back(moved[c].empty() ? Dfa::kDead : state_of(close(moved[c], false, is_word[c])));
    }
  }
  if (order.empty()) return out;
  return trimmed(out);
}

}  // namespace palimpsest::schema
