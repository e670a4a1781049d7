// Regular expressions of ECMA-262, as JSON Schema uses them: a text matches if a part of it does.
#pragma once

#include <string_view>

#include "palimpsest/text/schema/automaton.h"

namespace palimpsest::schema {

// The texts that `pattern` matches. Supported: all of ECMA-262 with the flag u, except back references, scripts
// (\p{Script=...}), and lookarounds inside a group or repetition. `(?i)` at the start ignores the case of ASCII, Latin,
// Greek and Cyrillic letters. Throws Error with the reason, or TooComplex.
Dfa compile_regex(std::string_view pattern, Work& work);

}  // namespace palimpsest::schema
