// Parses regular expressions of ECMA-262 to a tree.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "palimpsest/text/schema/automaton.h"

namespace palimpsest::schema {

struct RegexNode {
  enum class Kind { kSequence, kAlternatives, kSet, kRepeat, kAssertion, kLookahead, kLookbehind };
  Kind kind = Kind::kSequence;
  std::vector<RegexNode> parts = {};  // of a sequence or alternatives; the one that is repeated or looked for
  CharSet set = {};
  std::size_t min = 0, max = 0;  // kUnbounded
  Nfa::Assertion assertion = Nfa::Assertion::kBegin;
  bool negative = false;  // of a lookaround
};

RegexNode parse_regex(std::string_view pattern);  // throws Error

}  // namespace palimpsest::schema
