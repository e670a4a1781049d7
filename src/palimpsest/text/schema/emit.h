// Writes nodes as a GBNF grammar of JSON texts.
#pragma once

#include <string>

#include "palimpsest/text/schema/nodes.h"

namespace palimpsest::schema {

// `prefix`: of the names of all rules but those of any values, which are the same in all grammars. The root rule's name
// is prefix + "root". Throws TooComplex for a grammar that is too large to be compiled.
std::string grammar_of(const Nodes& nodes, const std::string& prefix);
std::string rule_of(const Nodes& nodes, std::size_t node, const std::string& prefix);

}  // namespace palimpsest::schema
