// Typed access to the fields of a JSON object; unknown fields are refused by name.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/server/api_error.h"

namespace palimpsest {

// Parses a body of at most 64 nesting levels. Throws ApiError.
Json parse_json(std::string_view body);

// Calls parse(), whose Error becomes an ApiError that names the field.
template <typename Parse>
auto parse_field(const std::string& field, const Parse& parse) {
  try {
    return parse();
  } catch (const Error& error) {
    fail_field(field, "'{}': {}", field, without_folders(error.what()));
  }
}

// Functions with a `name` read this field, and throw ApiError if it is not of their type.
class JsonFields {
 public:
  // `where`: prefix of field names in errors, "" or "response_format.". The object must outlive this.
  explicit JsonFields(const Json& object, std::string where = {});  // throws ApiError unless it is an object
  void ignore(std::initializer_list<const char*> names);            // accepted and unused
  void ignore_rest();                                               // likewise, all that were not read
  std::vector<std::string> rest() const;                            // those that were not read
  void end() const;                                                 // throws ApiError for such a field

  const Json* take(const char* name);  // nullptr: absent or null; the two are always equivalent
  const Json& need(const char* name);  // throws ApiError if it is absent
  bool boolean(const char* name, bool fallback);
  long long integer(const char* name, long long fallback, long long min, long long max);
  float number(const char* name, float fallback);  // finite
  std::string text(const char* name, const std::string& fallback);
  std::vector<std::string> texts(const char* name);  // a list; absent: an empty one
  // Calls read(JsonFields&) for the object, and then its end(). Absent: does nothing.
  template <typename Read>
  void object(const char* name, const Read& read) {
    if (const Json* value = take(name)) read_one(*value, path(name), read);
  }
  template <typename Read>
  void need_object(const char* name, const Read& read) {
    read_one(need(name), path(name), read);
  }
  // The same for each object of a list. Absent: does nothing.
  template <typename Read>
  void list(const char* name, const Read& read) {
    const Json* value = take(name);
    if (value == nullptr) return;
    if (!value->is_array()) refuse(name, "must be a list");
    each(*value, path(name), read);
  }
  template <typename Read>
  static void each(const Json& list, const std::string& path, const Read& read) {
    for (std::size_t i = 0; i < list.size(); ++i) read_one(list[i], fmt::format("{}[{}]", path, i), read);
  }
  std::string path(const char* name) const { return where_ + name; }
  // "'messages[0].role' must be ..."
  template <typename... Args>
  [[noreturn]] void refuse(const char* name, fmt::format_string<Args...> format, Args&&... args) const {
    fail_field(path(name), "'{}' {}", path(name), fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  template <typename Read>
  static void read_one(const Json& value, const std::string& path, const Read& read) {
    JsonFields fields(value, path + ".");
    read(fields);
    fields.end();
  }

  const Json& object_;
  std::string where_;
  std::set<std::string> taken_;
};

}  // namespace palimpsest
