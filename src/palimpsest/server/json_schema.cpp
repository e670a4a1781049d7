#include "palimpsest/server/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/text/chat_template.h"

namespace palimpsest {
namespace {

constexpr int kMaxSchemaDepth = 64;
constexpr long long kMaxRepeats = 1000;
constexpr double kMaxBound = 9007199254740992.0;    // 2^53
constexpr std::size_t kMaxParts = 10'000;           // values in the schema, of any kind
constexpr std::size_t kMaxName = 256;               // bytes of a property's name or a reference
constexpr std::size_t kMaxPattern = 1000;           // bytes of a regular expression
constexpr std::size_t kMaxOptionalPairs = 160'000;  // the converter's work: squares of optional properties, summed
constexpr const char* kRoot = "root-schema";        // name of the whole schema, if it refers to itself

constexpr std::array<std::string_view, 22> kInexpressible = {"not",
                                                             "if",
                                                             "then",
                                                             "else",
                                                             "patternProperties",
                                                             "propertyNames",
                                                             "contains",
                                                             "minContains",
                                                             "maxContains",
                                                             "dependentRequired",
                                                             "dependencies",
                                                             "multipleOf",
                                                             "minProperties",
                                                             "uniqueItems",
                                                             "unevaluatedProperties",
                                                             "maxProperties",
                                                             "dynamicRef",
                                                             "$dynamicRef",
                                                             "$recursiveRef",
                                                             "dependentSchemas",
                                                             "contentSchema",
                                                             "unevaluatedItems"};
constexpr std::array<std::string_view, 7> kTypes = {"object",  "array",   "string", "number",
                                                    "integer", "boolean", "null"};

class SchemaCheck {
 public:
  SchemaCheck(const Json& schema, std::string where, bool exact)
      : schema_(schema), path_(std::move(where)), exact_(exact) {}

  std::string text() {
    count_parts();
    Json out = any(schema_, 0, "");
    if (!refers_to_root_) return out.dump();
    Json whole = {{"$ref", std::string("#/$defs/") + kRoot}};
    for (const char* section : {"$defs", "definitions"}) {
      if (!out.contains(section)) continue;
      whole[section] = std::move(out[section]);
      out.erase(section);
    }
    whole["$defs"][kRoot] = std::move(out);
    return whole.dump();
  }

 private:
  // Appends to the path of the current part of the schema, for errors; restores it at the end of the scope.
  class PathScope {
   public:
    PathScope(std::string& path, std::string_view more) : path_(path), before_(path.size()) { path.append(more); }
    ~PathScope() { path_.resize(before_); }
    PathScope(const PathScope&) = delete;
    PathScope& operator=(const PathScope&) = delete;

   private:
    std::string& path_;
    std::size_t before_;
  };

  template <typename... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    fail_field(path_, "{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }

  void count_parts() const {
    std::vector<const Json*> open = {&schema_};
    std::size_t count = 1;
    while (!open.empty()) {
      const Json* const one = open.back();
      open.pop_back();
      count += one->is_structured() ? one->size() : 0;
      if (count > kMaxParts) wrong("the schema has more than {} values: make it smaller", kMaxParts);
      if (one->is_structured())
        for (const Json& each : *one) open.push_back(&each);
    }
  }

  Json any(const Json& schema, int depth, std::string_view where) {
    const PathScope scope(path_, where);
    if (depth > kMaxSchemaDepth) wrong("the schema is nested more than {} levels deep", kMaxSchemaDepth);
    if (schema.is_boolean() && schema.get<bool>()) return Json::object();
    if (!schema.is_object()) wrong("a schema must be a JSON object");
    check_type(schema);
    check_bounds(schema);
    check_names(schema);
    Json out = Json::object();
    auto& members = out.get_ref<Json::object_t&>();
    for (const auto& [key, value] : schema.items()) {
      if (exact_ && std::ranges::find(kInexpressible, key) != kInexpressible.end() && value != false)
        fail_field(path_ + "." + key, "{}.{}: a grammar cannot express '{}': leave it out", path_, key, key);
      members.emplace_back(key, member(key, value, depth));
    }
    return out;
  }

  Json member(const std::string& key, const Json& value, int depth) {
    const auto each = [&](const Json& list) {
      Json out = Json::array();
      for (std::size_t i = 0; i < list.size(); ++i)
        out.push_back(any(list[i], depth + 1, fmt::format(".{}[{}]", key, i)));
      return out;
    };
    const bool named = key == "properties" || key == "$defs" || key == "definitions";
    const bool list = key == "anyOf" || key == "oneOf" || key == "allOf" || key == "prefixItems";
    if (named && !value.is_object()) wrong("'{}' must be an object", key);
    if (list && (!value.is_array() || value.empty())) wrong("'{}' must be a list of at least one", key);
    if (key == "enum" && (!value.is_array() || value.empty())) wrong("'enum' must be a list of at least one");
    if (named) {
      Json out = Json::object();
      auto& members = out.get_ref<Json::object_t&>();
      for (const auto& [name, schema] : value.items()) {
        if (name.size() > kMaxName) wrong("a name in '{}' has more than {} bytes", key, kMaxName);
        members.emplace_back(name, any(schema, depth + 1, "." + key + "." + name));
      }
      return out;
    }
    if (list) return each(value);
    if (key == "items" && value.is_array()) return each(value);
    if (key == "items") return any(value, depth + 1, ".items");
    if (key == "additionalProperties" && !value.is_boolean()) return any(value, depth + 1, ".additionalProperties");
    if (key == "$ref") return reference(value);
    if (key == "pattern") check_pattern(value);
    return value;
  }

  Json reference(const Json& value) {
    const std::string path = value.is_string() ? value.get<std::string>() : value.dump();
    if (path.size() > kMaxName) wrong("a $ref has more than {} bytes", kMaxName);
    if (path == "#") {
      refers_to_root_ = true;
      return std::string("#/$defs/") + kRoot;
    }
    try {
      if (path.starts_with("#/") && schema_.contains(Json::json_pointer(path.substr(1)))) return path;
    } catch (const Json::exception&) {  // not a pointer
    }
    wrong("$ref '{}' leads nowhere: #/$defs/NAME is understood", path);
  }

  void check_type(const Json& schema) const {
    const auto type = schema.find("type");
    if (type == schema.end()) return;
    const Json list = type->is_array() ? *type : Json::array({*type});
    if (list.empty() || list.size() > kTypes.size()) wrong("'type' must be a type or a list of them");
    std::set<std::string> types;
    for (const Json& each : list) {
      if (!each.is_string() || std::ranges::find(kTypes, each.get<std::string>()) == kTypes.end())
        wrong("type {} is none of object, array, string, number, integer, boolean and null", each.dump());
      if (!types.insert(each.get<std::string>()).second) wrong("'type' has {} twice", each.dump());  // items for each
    }
  }

  void check_bounds(const Json& schema) const {
    const auto count = [&](const char* name, long long fallback) {
      const auto at = schema.find(name);
      if (at == schema.end()) return fallback;
      if (!at->is_number_integer() || *at < 0 || *at > kMaxRepeats)
        wrong("'{}' must be a whole number from 0 to {}", name, kMaxRepeats);
      return at->get<long long>();
    };
    const auto number = [&](const char* name, double fallback) {
      const auto at = schema.find(name);
      if (at == schema.end() || at->is_boolean()) return fallback;
      if (!at->is_number() || !(std::abs(at->get<double>()) <= kMaxBound))
        wrong("'{}' must be a number from -2^53 to 2^53", name);
      return at->get<double>();
    };
    if (count("maxLength", kMaxRepeats) < count("minLength", 0)) wrong("maxLength is below minLength");
    if (count("maxItems", kMaxRepeats) < count("minItems", 0)) wrong("maxItems is below minItems");
    const double min = std::max(number("minimum", -kMaxBound), std::floor(number("exclusiveMinimum", -kMaxBound)) + 1);
    const double max = std::min(number("maximum", kMaxBound), std::ceil(number("exclusiveMaximum", kMaxBound)) - 1);
    if (schema.value("type", Json()) == "integer" && std::floor(max) < std::ceil(min))
      wrong("no integer is within the bounds");
  }

  // The converter's work is quadratic in the optional properties of an object.
  void check_names(const Json& schema) {
    const auto properties = schema.find("properties"), required = schema.find("required");
    if (required != schema.end() && !required->is_array()) wrong("'required' must be a list of names");
    std::size_t needed = 0;
    if (required != schema.end()) {
      std::set<std::string> names;
      if (properties != schema.end() && properties->is_object())
        for (const auto& [name, value] : properties->items()) names.insert(name);
      for (const Json& name : *required) {
        const bool known = name.is_string() && names.contains(name.get<std::string>());
        if (exact_ && !known) wrong("'required' names {}, which 'properties' does not have", name.dump());
        needed += known ? 1 : 0;
      }
    }
    if (properties == schema.end()) return;
    const std::size_t optional = properties->size() - std::min(needed, properties->size());
    optional_pairs_ += optional * optional;
    if (optional_pairs_ > kMaxOptionalPairs) wrong("the schema has too many optional properties: require more of them");
  }

  void check_pattern(const Json& value) const {
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    const bool plain = std::ranges::none_of(text, [](unsigned char c) { return c < ' ' || c == 127; });
    if (!value.is_string() || text.size() > kMaxPattern || !plain)
      wrong("'pattern' must be a regular expression of at most {} bytes, without control characters", kMaxPattern);
    if (exact_ && !(text.starts_with("^") && text.ends_with("$")))
      fail_field(path_ + ".pattern", "{}.pattern: a pattern must begin with ^ and end with $", path_);
  }

  const Json& schema_;
  std::string path_;
  const bool exact_;
  bool refers_to_root_ = false;
  std::size_t optional_pairs_ = 0;
};

}  // namespace

std::string checked_schema(const Json& schema, const std::string& where, bool exact) {
  return SchemaCheck(schema, where, exact).text();
}

std::string schema_grammar(const Json& schema, const std::string& where) {
  const std::string text = checked_schema(schema, where, true);
  try {
    return schema_to_grammar(text);
  } catch (const Error& error) {
    fail_field(where, "{}: {}", where, error.what());
  }
}

}  // namespace palimpsest
