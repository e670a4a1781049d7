// JSON schemas as GBNF grammars, so that what a model writes is JSON of that shape.
#pragma once

#include <string>

#include "palimpsest/server/api_error.h"

namespace palimpsest {

// Understood: type (one or a list), properties, required, additionalProperties (no others are ever written), items,
// minItems, maxItems, minLength, maxLength, enum, const, anyOf, $ref into $defs or definitions, and annotations (title,
// description, default, ...). Properties come in the schema's order. Any other keyword throws ApiError by name.
// So do schemas of more than 10,000 values, 64 levels, or 5,000 rules.
std::string schema_grammar(const Json& schema);

std::string json_object_grammar();  // any JSON object

}  // namespace palimpsest
