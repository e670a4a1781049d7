// What constrains the text of an answer: a grammar, or a JSON Schema.
#pragma once

#include <string>

#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/text/sampler.h"

namespace palimpsest {

struct StructuredOutput {
  std::string grammar, schema;      // at most one, empty: any text
  std::string schema_grammar = {};  // of `schema`, with the prefix kReplyPrefix
  std::string field = {};           // where it came from, for errors
};

void read_grammar(JsonFields& fields, StructuredOutput& out);  // the field "grammar". Throws ApiError
// The reply is JSON of this schema. `field`: its path. Throws ApiError.
void read_schema(const Json& schema, const std::string& field, bool strict, StructuredOutput& out);
inline const Json kAnyObject = {{"type", "object"}};  // a schema
std::string grammar_of_schema(const StructuredOutput& output);
// Compiles output.grammar, if any. Throws ApiError.
void compile_output(const StructuredOutput& output, const Vocabulary* vocabulary, SamplerOptions& out);

}  // namespace palimpsest
