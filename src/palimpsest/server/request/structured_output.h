// The fields that constrain the output: grammar, response_format.
#pragma once

#include <string>

#include "palimpsest/server/api_error.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/text/sampler.h"

namespace palimpsest {

struct StructuredOutput {
  std::string grammar, schema;            // at most one, empty: any text
  std::string schema_grammar = {};        // of `schema`, with the prefix kReplyPrefix
  const char* field = "response_format";  // where it came from
};

StructuredOutput read_structured_output(JsonFields& fields);  // throws ApiError
// The reply is JSON of this schema. `where`: its path in errors. Throws ApiError.
void read_schema(const Json& schema, const std::string& where, bool strict, StructuredOutput& out);
std::string grammar_of_schema(const StructuredOutput& output);
// Compiles output.grammar, if any. Throws ApiError.
void compile(const StructuredOutput& output, const Vocabulary* vocabulary, SamplerOptions& out);

}  // namespace palimpsest
