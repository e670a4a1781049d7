// Whether a value is valid: for the values of enum and const, and as the oracle of tests.
#pragma once

#include "palimpsest/text/schema/document.h"

namespace palimpsest::schema {

class Regexes;

// `unknown`: what is assumed of a keyword that is not supported. `format` is an annotation. Throws Error for a $ref
// that leads nowhere, or if the schema refers to itself without end.
class Validator {
 public:
  Validator(const Document& document, Regexes& regexes) : document_(document), regexes_(regexes) {}
  bool valid(const Json& value, const Json& schema) { return valid(value, schema, nullptr, 0); }

 private:
  struct Evaluated;  // properties and items
  bool valid(const Json& value, const Json& schema, Evaluated* evaluated, int depth);
  bool applicators(const Json& value, const Json& schema, Evaluated& evaluated, int depth);
  bool object(const Json& value, const Json& schema, Evaluated& evaluated, int depth);
  bool array(const Json& value, const Json& schema, Evaluated& evaluated, int depth);
  bool scalar(const Json& value, const Json& schema);

  const Document& document_;
  Regexes& regexes_;
};

}  // namespace palimpsest::schema
