// Compiles the text of a grammar to checked rules.
#pragma once

#include <string_view>

#include "palimpsest/text/grammar/rules.h"

namespace palimpsest {

class Vocabulary;

// Compiles llama.cpp's GBNF. `vocabulary`: for <token> elements; nullptr: they are refused. Uses neither recursion nor
// locks. Throws Error with the line number if the text is not GBNF, exceeds a limit, has no rule `root`, has an
// undefined rule, or is left recursive.
GrammarRules compile_grammar(std::string_view text, const Vocabulary* vocabulary);

}  // namespace palimpsest
