// The text of a grammar as rules that are found to be sound.
#pragma once

#include <string_view>

#include "palimpsest/text/grammar/rules.h"

namespace palimpsest {

class Vocabulary;

// Compiles llama.cpp's GBNF. `vocabulary` is for <token> elements; nullptr: they are refused. Uses neither recursion
// nor locks. Throws Error that names the line, for text that is not GBNF, beyond a limit, without a rule `root`, with
// an undefined rule, or left recursive.
GrammarRules compile_grammar(std::string_view text, const Vocabulary* vocabulary);

}  // namespace palimpsest
