// General categories of Unicode, for \p{...} in regular expressions.
#pragma once

#include <optional>
#include <string_view>

#include "palimpsest/text/schema/automaton.h"

namespace palimpsest::schema {

// "L", "Lu", "Letter", "gc=Lu", "Any", "ASCII", ...; nothing for an unknown name, or a script.
std::optional<CharSet> characters_with_property(std::string_view name);

}  // namespace palimpsest::schema
