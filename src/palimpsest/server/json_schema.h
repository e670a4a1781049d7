// JSON Schemas of clients: their limits, and their conversion to GBNF grammars, which constrain the output.
#pragma once

#include <string>

#include "palimpsest/server/api_error.h"

namespace palimpsest {

// What the converter (schema_to_grammar) takes, as text: limits checked, `true` as {}, "#" as a reference by name.
// `exact`: keywords that the grammar cannot express are refused by name; otherwise they are left to the model. `where`:
// the field in errors. Throws ApiError, also for schemas of more than 10,000 values or 64 levels.
std::string checked_schema(const Json& schema, const std::string& where, bool exact);

// Required properties are generated first, then the others, each in the schema's order. Throws ApiError.
std::string schema_grammar(const Json& schema, const std::string& where = "response_format.json_schema.schema");

}  // namespace palimpsest
