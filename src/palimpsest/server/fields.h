// The fields of one JSON object, each taken once and checked; what is left over is refused by name.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "palimpsest/server/api_error.h"

namespace palimpsest {

// A body, at most 64 levels deep. Throws ApiError.
Json parse_json(std::string_view body);

class Fields {
 public:
  // `where`: what its fields are called in errors, "" or "response_format.". The object must outlive this.
  explicit Fields(const Json& object, std::string where = {});  // throws ApiError unless it is an object

  const Json* take(const char* name);  // nullptr: not there, or null, which is the same everywhere
  bool boolean(const char* name, bool fallback);
  long long integer(const char* name, long long fallback, long long min, long long max);
  float number(const char* name, float fallback);  // finite
  std::string text(const char* name, const std::string& fallback);
  void ignore(std::initializer_list<const char*> names);  // heard of, and of no meaning here
  void end() const;                                       // throws ApiError for a field that nobody took
  std::string path(const char* name) const { return where_ + name; }

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string> taken_;
};

}  // namespace palimpsest
