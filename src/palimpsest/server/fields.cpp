#include "palimpsest/server/fields.h"

#include <cmath>

namespace palimpsest {

Json parse_json(std::string_view body) {
  static constexpr int kDeepest = 64;
  const auto check = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) fail_field("", "the body is nested more than {} levels deep", kDeepest);
    return true;
  };
  try {
    return Json::parse(body, check);
  } catch (const Json::parse_error& error) {
    const std::string_view what = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    fail_field("", "the body is not valid JSON: {}",
               what.substr(what.find("] ") == what.npos ? 0 : what.find("] ") + 2));
  } catch (const Json::exception& error) {
    fail_field("", "the body is not valid JSON: {}", error.what());
  }
}

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object())
    fail_field(where_.substr(0, where_.size() - (where_.empty() ? 0 : 1)), "{} must be a JSON object",
               where_.empty() ? "the body" : "'" + where_.substr(0, where_.size() - 1) + "'");
}

const Json* Fields::take(const char* name) {
  taken_.insert(name);
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

bool Fields::boolean(const char* name, bool otherwise) {
  const Json* value = take(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) fail_field(path(name), "'{}' must be true or false", path(name));
  return value->get<bool>();
}

long long Fields::integer(const char* name, long long otherwise, long long least, long long most) {
  const Json* value = take(name);
  if (value == nullptr) return otherwise;
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(most)) &&
                    value->get<long long>() >= least && value->get<long long>() <= most;
  if (!fits) fail_field(path(name), "'{}' must be a whole number from {} to {}", path(name), least, most);
  return value->get<long long>();
}

float Fields::number(const char* name, float otherwise) {
  const Json* value = take(name);
  if (value == nullptr) return otherwise;
  if (!value->is_number() || !std::isfinite(value->get<float>()))
    fail_field(path(name), "'{}' must be a number", path(name));
  return value->get<float>();
}

std::string Fields::text(const char* name, const std::string& otherwise) {
  const Json* value = take(name);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) fail_field(path(name), "'{}' must be a string", path(name));
  return value->get<std::string>();
}

void Fields::ignore(std::initializer_list<const char*> names) {
  taken_.insert(names.begin(), names.end());
}

void Fields::end() const {
  for (const auto& [name, value] : object_.items())
    if (!taken_.contains(name) && !value.is_null())
      fail_field(where_ + name, "'{}{}' is not supported here: leave it out (docs/server.md lists what is)", where_,
                 name);
}

}  // namespace palimpsest
