// JSON Schema to a grammar (docs/decisions/0038-json-schema.md).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "palimpsest/text/schema/mode.h"

namespace palimpsest {

struct CompiledSchema {
  // A property of a schema of objects of one kind, for grammars that write each property apart.
  struct Property {
    std::string name, rule;
    bool required = false;
    bool string = false, only_string = false, any_string = false;  // may be one, is one, every one is valid
  };
  std::string grammar;               // GBNF, with the rule `root`
  std::vector<std::string> dropped;  // "PATH: reason", at most 20; strict: none
  std::vector<Property> properties = {};
};

struct SchemaOptions {
  SchemaMode mode = SchemaMode::kStrict;
  std::string prefix = {};  // of the rules' names, `root` included: letters, digits and '-'; not "any-json-"
  bool object = false;      // lenient: what cannot be compiled as a whole is any object, not any value
};

// The grammar of JSON texts whose values are valid (draft 2020-12; also the drafts before it, where they do not
// contradict). Every text of the grammar is valid JSON, and valid for the schema; not every valid text is in the
// grammar: properties are in the schema's order, objects with `properties` have no others unless additionalProperties
// says so, and white space is an optional space after ',' and ':'. Work is counted and bounded. Throws SchemaError in
// strict mode: a keyword that is not supported, a schema without any valid value, a schema beyond the limits.
CompiledSchema compile_schema(const nlohmann::ordered_json& schema, const SchemaOptions& options);

// Whether a value is valid: an oracle for tests. Throws Error for a schema that it does not support.
bool is_valid(const nlohmann::ordered_json& value, const nlohmann::ordered_json& schema);

}  // namespace palimpsest
