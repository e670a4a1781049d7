// Parses the text of a grammar to rules, not yet checked.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/text/grammar/rules.h"

namespace palimpsest {

class Vocabulary;

struct ParsedGrammar {
  GrammarRules rules;              // `root` and `alternatives` are set; a rule without alternatives is undefined
  std::vector<std::string> names;  // of the rules; a group or repetition has the name of its enclosing rule
  std::vector<std::size_t> lines;  // of each rule's first mention, from 1
  bool has_root = false;
};

ParsedGrammar parse_grammar(std::string_view text, const Vocabulary* vocabulary);  // throws Error

}  // namespace palimpsest
