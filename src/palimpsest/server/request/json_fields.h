// Typed access to the fields of a JSON object; unknown fields are refused by name.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/server/api_error.h"

namespace palimpsest {

// Parses a body of at most 64 nesting levels. Throws ApiError.
Json parse_json(std::string_view body);

class JsonFields {
 public:
  // `where`: prefix of field names in errors, "" or "response_format.". The object must outlive this.
  explicit JsonFields(const Json& object, std::string where = {});  // throws ApiError unless it is an object

  const Json* take(const char* name);  // nullptr: absent or null; the two are always equivalent
  bool boolean(const char* name, bool fallback);
  long long integer(const char* name, long long fallback, long long min, long long max);
  float number(const char* name, float fallback);  // finite
  std::string text(const char* name, const std::string& fallback);
  void ignore(std::initializer_list<const char*> names);  // accepted and unused
  void end() const;                                       // throws ApiError for a field that was never taken
  std::vector<std::string> rest() const;                  // the fields that were never taken
  std::string path(const char* name) const { return where_ + name; }

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string> taken_;
};

}  // namespace palimpsest
