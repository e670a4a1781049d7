// What happens to a schema that cannot be enforced.
#pragma once

#include <string>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {

// strict: a keyword that the grammar does not enforce is an error. lenient: it is left to the model, and listed.
enum class SchemaMode { kStrict, kLenient };

// `path`: of the part of the schema, ".properties.a.pattern"; what() does not contain it.
class SchemaError : public Error {
 public:
  SchemaError(std::string path, const std::string& reason) : Error(reason), path_(std::move(path)) {}
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace palimpsest
