// Sets of characters, and finite automata over code points. Surrogates are in no set: a text has none.
//
// All work is counted (Work), not timed: a limit ends the same schema at the same place on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "palimpsest/core/error.h"

namespace palimpsest::schema {

class TooComplex : public Error {
 public:
  using Error::Error;
};

class Work {
 public:
  explicit Work(std::size_t limit) : left_(limit) {}
  void spend(std::size_t amount) {
    if (amount > left_) {
      left_ = 0;
      throw TooComplex("it needs too much work: make it simpler");
    }
    left_ -= amount;
  }

 private:
  std::size_t left_;
};

inline constexpr std::size_t kMaxStates = 4000;  // of one automaton

struct Interval {
  std::uint32_t first = 0, last = 0;  // both included
  bool operator==(const Interval&) const = default;
};

// Ascending, with gaps between the intervals.
using CharSet = std::vector<Interval>;
CharSet char_set(std::vector<Interval> intervals);
CharSet complement_of(const CharSet& set);
CharSet union_of(const CharSet& a, const CharSet& b);
CharSet intersection_of(const CharSet& a, const CharSet& b);
bool contains(const CharSet& set, std::uint32_t character);
const CharSet& all_characters();

std::vector<std::uint32_t> code_points(std::string_view utf8);

// A partition of all characters into classes.
struct Alphabet {
  std::vector<std::uint32_t> starts = {0};   // ascending; an interval ends where the next begins
  std::vector<std::uint32_t> classes = {0};  // of each interval
  std::uint32_t count = 1;                   // of classes
  std::uint32_t class_of(std::uint32_t character) const;
  CharSet characters_of(std::uint32_t index) const;
};
Alphabet alphabet_of(const std::vector<CharSet>& sets, Work& work);

// Deterministic; state 0 is the start. Every state can lead to an accepting one, unless the language is empty.
struct Dfa {
  static constexpr std::int32_t kDead = -1;
  Alphabet alphabet = {};
  std::vector<std::int32_t> next = {};  // [states][classes]
  std::vector<bool> accepts = {};

  std::size_t states() const { return accepts.size(); }
  std::int32_t step(std::int32_t state, std::uint32_t index) const {
    return next[static_cast<std::size_t>(state) * alphabet.count + index];
  }
  bool empty() const { return accepts.empty(); }
  bool matches(std::string_view utf8) const;
};

enum class Combine { kAnd, kOr, kWithout };
Dfa combine(const Dfa& a, const Dfa& b, Combine how, Work& work);  // throws TooComplex
Dfa complement_of(const Dfa& a, Work& work);
Dfa any_text();
Dfa texts_of_length(std::size_t min, std::size_t max, Work& work);  // in characters
Dfa texts_of(const std::vector<std::string>& texts, Work& work);
// Equivalent states are merged, if the automaton is small.
Dfa minimized(Dfa dfa, Work& work);

inline constexpr std::size_t kUnbounded = ~std::size_t{0};
struct Lengths {
  std::size_t min = 0, max = kUnbounded;
};
Lengths lengths_of(const Dfa& dfa, Work& work);  // of its texts

// Nondeterministic, for construction. An assertion consumes nothing.
struct Nfa {
  enum class Assertion : std::uint8_t { kBegin, kEnd, kBoundary, kNoBoundary };
  struct State {
    std::vector<std::uint32_t> epsilon;
    std::vector<std::pair<Assertion, std::uint32_t>> assertions;
    std::int32_t set = -1;  // into `sets`: leads to `to`
    std::uint32_t to = 0;
  };
  std::vector<State> states;
  std::vector<CharSet> sets;

  std::uint32_t add() {
    states.emplace_back();
    return static_cast<std::uint32_t>(states.size() - 1);
  }
  std::uint32_t set(CharSet characters);  // its number; equal sets have the same
  void link(std::uint32_t from, std::uint32_t to) { states[from].epsilon.push_back(to); }
};
// `rest`: `final` accepts whatever follows. `at_start`: kBegin holds at the start.
Dfa determinize(const Nfa& nfa, std::uint32_t start, std::uint32_t final, bool rest, bool at_start, Work& work);

const CharSet& word_characters();  // of \w and \b: ASCII, as in ECMA-262

}  // namespace palimpsest::schema
