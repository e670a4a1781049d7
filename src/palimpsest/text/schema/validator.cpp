#include "palimpsest/text/schema/validator.h"

#include <algorithm>
#include <set>

#include "palimpsest/core/error.h"
#include "palimpsest/text/schema/branch.h"
#include "palimpsest/text/schema/regexes.h"

namespace palimpsest::schema {
namespace {

constexpr int kMaxSteps = 200;  // of nested schemas

bool is_of_type(const Json& value, const Json& type) {
  if (!type.is_string()) return false;
  const auto name = type.get<std::string>();
  if (name == "number") return value.is_number();
  if (name == "integer") return value.is_number() && decimal_of(value).is_integer();
  if (name == "boolean") return value.is_boolean();
  if (name == "string") return value.is_string();
  if (name == "array") return value.is_array();
  if (name == "object") return value.is_object();
  return name == "null" && value.is_null();
}

const Json* member(const Json& schema, const char* keyword) {
  const auto at = schema.find(keyword);
  return at == schema.end() ? nullptr : &*at;
}

// A keyword with a count: whether `size` is on the right side of it.
bool within(const Json& schema, const char* min, const char* max, std::size_t size) {
  const Json* const low = member(schema, min);
  const Json* const high = member(schema, max);
  if (low != nullptr && low->is_number() && static_cast<double>(size) < low->get<double>()) return false;
  return high == nullptr || !high->is_number() || static_cast<double>(size) <= high->get<double>();
}

}  // namespace

struct Validator::Evaluated {
  std::set<std::string> properties;
  std::set<std::size_t> items;
  void add(const Evaluated& more) {
    properties.insert(more.properties.begin(), more.properties.end());
    items.insert(more.items.begin(), more.items.end());
  }
};

bool Validator::valid(const Json& value, const Json& schema, Evaluated* evaluated, int depth) {
  if (depth > kMaxSteps) fail("the schema refers to itself without end");
  if (schema.is_boolean()) return schema.get<bool>();
  if (!schema.is_object()) return true;
  regexes_.work().spend(schema.size() + 1);
  Evaluated own;
  if (!scalar(value, schema) || !applicators(value, schema, own, depth)) return false;
  if (value.is_object() && !object(value, schema, own, depth)) return false;
  if (value.is_array() && !array(value, schema, own, depth)) return false;
  if (evaluated != nullptr) evaluated->add(own);
  return true;
}

bool Validator::scalar(const Json& value, const Json& schema) {
  if (const Json* type = member(schema, "type")) {
    const bool fits = type->is_array()
                          ? std::ranges::any_of(*type, [&](const Json& each) { return is_of_type(value, each); })
                          : is_of_type(value, *type);
    if (!fits) return false;
  }
  if (const Json* list = member(schema, "enum"); list != nullptr && list->is_array())
    if (std::ranges::none_of(*list, [&](const Json& each) { return same_value(value, each); })) return false;
  if (const Json* constant = member(schema, "const"))
    if (!same_value(value, *constant)) return false;
  if (value.is_number()) {
    const Decimal number = decimal_of(value);
    const auto order = [&](const char* keyword, int fallback) {
      const Json* const bound = member(schema, keyword);
      return bound == nullptr || !bound->is_number() ? fallback : compare(number, decimal_of(*bound));
    };
    const auto open = [&](const char* keyword) {
      const Json* const flag = member(schema, keyword);
      return flag != nullptr && *flag == true;
    };
    if (order("minimum", 1) < (open("exclusiveMinimum") ? 1 : 0)) return false;
    if (order("maximum", -1) > (open("exclusiveMaximum") ? -1 : 0)) return false;
    if (order("exclusiveMinimum", 1) <= 0 || order("exclusiveMaximum", -1) >= 0) return false;
    const Json* const multiple = member(schema, "multipleOf");
    if (multiple != nullptr && multiple->is_number() && *multiple > 0)
      if (!is_multiple(number, decimal_of(*multiple)).value_or(false)) return false;
  }
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    if (!within(schema, "minLength", "maxLength", code_points(text).size())) return false;
    const Json* const pattern = member(schema, "pattern");
    if (pattern != nullptr && pattern->is_string())
      if (!regexes_.get(pattern->get<std::string>()).matches(text)) return false;
  }
  return true;
}

bool Validator::applicators(const Json& value, const Json& schema, Evaluated& evaluated, int depth) {
  const auto holds = [&](const Json& part) { return valid(value, part, &evaluated, depth + 1); };
  for (const char* keyword : {"$ref", "$dynamicRef", "$recursiveRef"})
    if (const Json* reference = member(schema, keyword); reference != nullptr && reference->is_string()) {
      const Json* const target = keyword[1] == 'd' ? document_.dynamic_target(&schema, reference->get<std::string>())
                                                   : document_.resolve(&schema, reference->get<std::string>());
      if (target == nullptr) fail("the {} leads nowhere", keyword);
      if (!holds(*target)) return false;
    }
  if (const Json* all = member(schema, "allOf"); all != nullptr && all->is_array())
    for (const Json& each : *all)
      if (!holds(each)) return false;
  const auto count = [&](const char* keyword) {
    std::size_t out = 0;
    for (const Json& each : schema[keyword]) out += holds(each) ? 1 : 0;
    return out;
  };
  if (const Json* any = member(schema, "anyOf"); any != nullptr && any->is_array())
    if (count("anyOf") == 0) return false;
  if (const Json* one = member(schema, "oneOf"); one != nullptr && one->is_array())
    if (count("oneOf") != 1) return false;
  if (const Json* no = member(schema, "not"))
    if (valid(value, *no, nullptr, depth + 1)) return false;
  if (const Json* condition = member(schema, "if")) {
    const Json* const then = member(schema, holds(*condition) ? "then" : "else");
    if (then != nullptr && !holds(*then)) return false;
  }
  return true;
}

bool Validator::object(const Json& value, const Json& schema, Evaluated& evaluated, int depth) {
  if (!within(schema, "minProperties", "maxProperties", value.size())) return false;
  if (const Json* names = member(schema, "required"); names != nullptr && names->is_array())
    for (const Json& name : *names)
      if (name.is_string() && !value.contains(name.get<std::string>())) return false;
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Json* const all = member(schema, keyword);
    if (all == nullptr || !all->is_object()) continue;
    for (const auto& [name, needs] : all->items()) {
      if (!value.contains(name)) continue;
      if (!needs.is_array()) {
        if (!valid(value, needs, &evaluated, depth + 1)) return false;
        continue;
      }
      for (const Json& each : needs)
        if (each.is_string() && !value.contains(each.get<std::string>())) return false;
    }
  }
  const Json* const properties = member(schema, "properties");
  const Json* const patterns = member(schema, "patternProperties");
  const Json* const additional = member(schema, "additionalProperties");
  const Json* const names = member(schema, "propertyNames");
  for (const auto& [name, each] : value.items()) {
    if (names != nullptr && !valid(Json(name), *names, nullptr, depth + 1)) return false;
    bool known = false;
    const auto holds = [&](const Json& part) {
      known = true;
      evaluated.properties.insert(name);
      return valid(each, part, nullptr, depth + 1);
    };
    if (properties != nullptr && properties->is_object() && properties->contains(name))
      if (!holds((*properties)[name])) return false;
    if (patterns != nullptr && patterns->is_object())
      for (const auto& [pattern, part] : patterns->items())
        if (regexes_.get(pattern).matches(name) && !holds(part)) return false;
    if (!known && additional != nullptr && !holds(*additional)) return false;
  }
  if (const Json* rest = member(schema, "unevaluatedProperties"))
    for (const auto& [name, each] : value.items()) {
      if (!evaluated.properties.insert(name).second) continue;
      if (!valid(each, *rest, nullptr, depth + 1)) return false;
    }
  return true;
}

bool Validator::array(const Json& value, const Json& schema, Evaluated& evaluated, int depth) {
  if (!within(schema, "minItems", "maxItems", value.size())) return false;
  if (const Json* unique = member(schema, "uniqueItems"); unique != nullptr && *unique == true)
    for (std::size_t i = 0; i < value.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (same_value(value[i], value[j])) return false;
  const Json* items = member(schema, "items");
  const Json* prefix = member(schema, "prefixItems");
  if (items != nullptr && items->is_array()) {
    prefix = items;
    items = member(schema, "additionalItems");
  }
  const std::size_t known = prefix != nullptr && prefix->is_array() ? prefix->size() : 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const Json* const part = i < known ? &(*prefix)[i] : items;
    if (part == nullptr) continue;
    evaluated.items.insert(i);
    if (!valid(value[i], *part, nullptr, depth + 1)) return false;
  }
  if (const Json* contains = member(schema, "contains")) {
    std::size_t found = 0;
    for (std::size_t i = 0; i < value.size(); ++i)
      if (valid(value[i], *contains, nullptr, depth + 1)) {
        ++found;
        evaluated.items.insert(i);
      }
    if (found == 0 && member(schema, "minContains") == nullptr) return false;
    if (!within(schema, "minContains", "maxContains", found)) return false;
  }
  if (const Json* rest = member(schema, "unevaluatedItems"))
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (!evaluated.items.insert(i).second) continue;
      if (!valid(value[i], *rest, nullptr, depth + 1)) return false;
    }
  return true;
}

}  // namespace palimpsest::schema
