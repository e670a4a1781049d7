// JSON Schemas of clients, compiled to grammars (text/schema/compile); errors name the field of the request.
#pragma once

#include <memory>
#include <string>

#include "palimpsest/server/api_error.h"
#include "palimpsest/text/schema/compile.h"

namespace palimpsest {

// `where`: the field in errors. Strict: throws ApiError with the path of the keyword that is not supported. Lenient:
// what is dropped is in the request's log line, as `schema_dropped`. Equal schemas are compiled once, as long as they
// are among the last ones.
std::shared_ptr<const CompiledSchema> compiled_schema(const Json& schema, const std::string& where,
                                                      const SchemaOptions& options);

}  // namespace palimpsest
