// Converts JSON schemas to GBNF grammars, which constrain the output.
#pragma once

#include <string>

#include "palimpsest/server/api_error.h"

namespace palimpsest {

// Supported: type (one or a list), properties, required, additionalProperties (never generated), items, minItems,
// maxItems, minLength, maxLength, enum, const, anyOf, $ref into $defs or definitions, and annotations (title,
// description, default, ...). Properties are generated in the schema's order. Throws ApiError that names an unsupported
// keyword, and for schemas of more than 10,000 values, 64 levels, or 5,000 rules.
std::string schema_grammar(const Json& schema);

std::string json_object_grammar();  // any JSON object

}  // namespace palimpsest
