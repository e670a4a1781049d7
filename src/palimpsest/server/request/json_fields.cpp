#include "palimpsest/server/request/json_fields.h"

#include <cmath>

namespace palimpsest {

namespace {

constexpr int kMaxBodyDepth = 64;

// Whether arrays and objects are nested deeper than kMaxBodyDepth. Counts brackets outside strings: exact for valid
// JSON; the parser refuses the rest. (The parser's callback would cost a pass over the array for every object in it.)
bool too_deep(std::string_view body) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxBodyDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Json parse_json(std::string_view body) {
  if (too_deep(body)) fail_field("", "the body is nested more than {} levels deep", kMaxBodyDepth);
  try {
    return Json::parse(body);
  } catch (const Json::exception& error) {
    const std::string_view what = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    fail_field("", "the body is not valid JSON: {}",
               what.substr(what.find("] ") == what.npos ? 0 : what.find("] ") + 2));
  }
}

JsonFields::JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object())
    fail_field(where_.substr(0, where_.size() - (where_.empty() ? 0 : 1)), "{} must be a JSON object",
               where_.empty() ? "the body" : "'" + where_.substr(0, where_.size() - 1) + "'");
}

const Json* JsonFields::take(const char* name) {
  taken_.insert(name);
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

const Json& JsonFields::need(const char* name) {
  const Json* value = take(name);
  if (value == nullptr) refuse(name, "is missing");
  return *value;
}

bool JsonFields::boolean(const char* name, bool fallback) {
  const Json* value = take(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) refuse(name, "must be true or false");
  return value->get<bool>();
}

// Clients of languages without whole numbers write 5.0.
long long JsonFields::integer(const char* name, long long fallback, long long min, long long max) {
  const Json* value = take(name);
  if (value == nullptr) return fallback;
  if (value->is_number_float()) {
    const double number = value->get<double>();
    // Beyond 2^53 not every whole number is one.
    if (number == std::trunc(number) && std::abs(number) <= 9e15 && number >= static_cast<double>(min) &&
        number <= static_cast<double>(max))
      return static_cast<long long>(number);
  }
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(max)) &&
                    value->get<long long>() >= min && value->get<long long>() <= max;
  if (!fits) refuse(name, "must be a whole number from {} to {}", min, max);
  return value->get<long long>();
}

float JsonFields::number(const char* name, float fallback) {
  const Json* value = take(name);
  if (value == nullptr) return fallback;
  if (!value->is_number() || !std::isfinite(value->get<float>())) refuse(name, "must be a number");
  return value->get<float>();
}

std::string JsonFields::text(const char* name, const std::string& fallback) {
  const Json* value = take(name);
  if (value == nullptr) return fallback;
  if (!value->is_string()) refuse(name, "must be a string");
  return value->get<std::string>();
}

std::vector<std::string> JsonFields::texts(const char* name) {
  std::vector<std::string> out;
  const Json* value = take(name);
  if (value == nullptr) return out;
  if (!value->is_array()) refuse(name, "must be a list of texts");
  for (const Json& each : *value) {
    if (!each.is_string()) refuse(name, "must be a list of texts");
    out.push_back(each.get<std::string>());
  }
  return out;
}

void JsonFields::ignore(std::initializer_list<const char*> names) {
  taken_.insert(names.begin(), names.end());
}

void JsonFields::ignore_rest() {
  for (const auto& [name, value] : object_.items()) taken_.insert(name);
}

std::vector<std::string> JsonFields::rest() const {
  std::vector<std::string> out;
  for (const auto& [name, value] : object_.items())
    if (!taken_.contains(name) && !value.is_null()) out.push_back(name);
  return out;
}

void JsonFields::end() const {
  for (const std::string& name : rest())
    fail_field(where_ + name, "'{}{}' is not supported here: leave it out (docs/server.md lists what is)", where_,
               name);
}

}  // namespace palimpsest
