// The fields that constrain the output: grammar, response_format.
#pragma once

#include <string>

#include "palimpsest/server/api_error.h"
#include "palimpsest/server/fields.h"
#include "palimpsest/text/sampler.h"

namespace palimpsest {

struct OutputShape {
  std::string grammar, schema;            // at most one, empty: any text
  std::string schema_grammar = {};        // of `schema`, with the prefix kReplyPrefix
  const char* field = "response_format";  // where it came from
};

OutputShape read_output_shape(Fields& fields);  // throws ApiError
// The reply is JSON of this schema. `where`: its path in errors. Throws ApiError.
void read_schema(const Json& schema, const std::string& where, bool strict, OutputShape& out);
std::string grammar_of_schema(const OutputShape& shape);
// Compiles shape.grammar, if any. Throws ApiError.
void compile(const OutputShape& shape, const Vocabulary* vocabulary, SamplerOptions& out);

}  // namespace palimpsest
