// A compiled GBNF grammar: plain data, immutable, shared by all samplers that use it.
//
//   root ::= "a" [0-9]* | <[7]>        elements: 'a' -> star -> end | token 7 -> end
//                                      star:     [0-9] -> star -> end | end
//
// Groups and repetitions are rules of their own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace palimpsest {

struct GrammarRules {
  enum class Kind : std::uint8_t { kEnd, kRule, kCharacter, kClass, kToken, kNotToken };
  struct Element {
    Kind kind = Kind::kEnd;
    std::uint32_t value = 0;  // the rule, the code point, the class, or the token
  };
  struct Range {
    std::uint32_t first = 0, last = 0;  // code points, both included
  };
  struct Slice {
    std::uint32_t begin = 0, end = 0;
  };

  std::vector<Element> elements;            // of all alternatives, each terminated by kEnd
  std::vector<std::uint32_t> alternatives;  // start of each; those of a rule are consecutive
  std::vector<Slice> rules;                 // into `alternatives`
  std::vector<Range> ranges;                // of all classes; within a class ascending, with gaps between them
  std::vector<Slice> classes;               // into `ranges`
  std::uint32_t root = 0;

  std::span<const std::uint32_t> alternatives_of(std::uint32_t rule) const {
    return std::span(alternatives).subspan(rules[rule].begin, rules[rule].end - rules[rule].begin);
  }
  std::span<const Range> ranges_of(std::uint32_t index) const {
    return std::span(ranges).subspan(classes[index].begin, classes[index].end - classes[index].begin);
  }
};

inline constexpr std::uint32_t kMaxCodePoint = 0x10FFFF;

// Limits of one grammar. They bound compilation to a few milliseconds and a few MiB.
inline constexpr std::size_t kMaxGrammarBytes = std::size_t{256} << 10;
inline constexpr std::size_t kMaxGrammarElements = 100'000;  // after expanding repetitions
inline constexpr std::size_t kMaxGrammarDepth = 200;         // of brackets

}  // namespace palimpsest
