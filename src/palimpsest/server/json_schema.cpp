#include "palimpsest/server/json_schema.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "palimpsest/server/fields.h"

namespace palimpsest {
namespace {

constexpr const char* kWhere = "response_format.json_schema.schema";
constexpr int kMaxSchemaDepth = 64;
constexpr long long kMaxRepeats = 1000;
constexpr std::size_t kMaxRules = 5000;
constexpr std::size_t kMaxParts = 10'000;  // values in the schema, of any kind

// White space is bounded, so that a model cannot generate it indefinitely. Numbers stay within a double's range; \u is
// allowed only for control characters, which have no other spelling.
constexpr const char* kCommon = R"gbnf(
ws ::= (" " | "\n" " "{0,20})?
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (member ws ("," ws member ws)*)? "}"
member ::= string ws ":" ws value
array ::= "[" ws (value ws ("," ws value ws)*)? "]"
char ::= [^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u00" [01] [0-9a-f])
string ::= "\"" char* "\""
integer ::= "-"? ("0" | [1-9] [0-9]{0,15})
number ::= integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?
)gbnf";

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;  // a JSON text has no control characters
  }
  return out + '"';
}

class Converter {
 public:
  explicit Converter(const Json& schema) : schema_(schema) {}

  std::string grammar() {
    count_parts();
    const std::string root = any(schema_, 0);
    std::string out = "root ::= " + root + "\n";
    for (const auto& [name, body] : rules_) out += name + " ::= " + body + "\n";
    return out + (kCommon + 1);
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

  // The expression for a value of this schema.
  std::string any(const Json& schema, int depth, std::string_view where = {}) {
    const PathScope scope(path_, where);
    if (depth > kMaxSchemaDepth) wrong("the schema is nested more than {} levels deep", kMaxSchemaDepth);
    if (schema.is_boolean() && schema.get<bool>()) return "value";
    Fields fields(schema, path_ + ".");
    fields.ignore({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema",
                   "$id", "$comment", "$defs", "definitions"});
    std::string out = chosen(fields, depth);
    fields.end();
    return out;
  }

  std::string chosen(Fields& fields, int depth) {
    if (const Json* ref = fields.take("$ref")) return reference(*ref, depth);
    if (const Json* value = fields.take("const")) {
      fields.ignore({"type"});
      return quoted(value->dump());
    }
    if (const Json* values = fields.take("enum")) {
      fields.ignore({"type"});
      return either(*values, "enum", [](const Json& each, std::string_view) { return quoted(each.dump()); });
    }
    if (const Json* schemas = fields.take("anyOf"))
      return either(*schemas, "anyOf",
                    [&](const Json& each, std::string_view where) { return any(each, depth + 1, where); });
    const Json* type = fields.take("type");
    if (type == nullptr) return fields.take("properties") != nullptr ? object(fields, depth) : "value";
    if (type->is_array())
      return either(*type, "type", [&](const Json& each, std::string_view) { return of_type(each, fields, depth); });
    return of_type(*type, fields, depth);
  }

  std::string of_type(const Json& type, Fields& fields, int depth) {
    if (type == "object") return object(fields, depth);
    if (type == "array") return array(fields, depth);
    if (type == "string") return string(fields);
    if (type == "number" || type == "integer") return type.get<std::string>();
    if (type == "boolean") return R"(("true" | "false"))";
    if (type == "null") return R"("null")";
    wrong("type {} is none of object, array, string, number, integer, boolean and null", type.dump());
  }

  template <typename Make>
  std::string either(const Json& list, const char* what, Make make) {
    if (!list.is_array() || list.empty()) wrong("'{}' must be a list of at least one", what);
    std::string out;
    for (std::size_t i = 0; i < list.size(); ++i)
      out += (i == 0 ? "(" : " | ") + make(list[i], fmt::format(".{}[{}]", what, i));
    return out + ")";
  }

  std::string reference(const Json& ref, int depth) {
    const std::string path = ref.is_string() ? ref.get<std::string>() : ref.dump();
    if (const auto known = references_.find(path); known != references_.end()) return known->second;
    for (const std::string section : {"$defs", "definitions"}) {
      const std::string prefix = "#/" + section + "/";
      if (!path.starts_with(prefix) || !schema_.contains(section)) continue;
      const auto at = schema_[section].find(path.substr(prefix.size()));
      if (at == schema_[section].end()) break;
      const std::string name = reserve();
      references_[path] = name;  // before its body, which may refer to itself
      const std::string before =
          std::exchange(path_, std::string(kWhere) + "." + section + "." + path.substr(prefix.size()));
      rules_[name] = any(*at, depth + 1);
      path_ = before;
      return name;
    }
    if (path == "#") {
      const std::string name = references_[path] = reserve();
      const std::string before = std::exchange(path_, kWhere);
      rules_[name] = any(schema_, depth + 1);
      path_ = before;
      return name;
    }
    wrong("$ref '{}' leads nowhere: #/$defs/NAME is understood", path);
  }

  std::pair<long long, long long> bounds(Fields& fields, const char* min_name, const char* max_name) {
    const long long min = fields.integer(min_name, 0, 0, kMaxRepeats);
    const long long max = fields.integer(max_name, -1, 0, kMaxRepeats);
    if (max >= 0 && max < min) wrong("{} {} is below {} {}", max_name, max, min_name, min);
    return {min, max};
  }

  static std::string repeated(long long min, long long max) {
    return max < 0 ? fmt::format("{{{},}}", min) : fmt::format("{{{},{}}}", min, max);
  }

  std::string string(Fields& fields) {
    const auto [min, max] = bounds(fields, "minLength", "maxLength");
    if (min == 0 && max < 0) return "string";
    return R"("\"" char)" + repeated(min, max) + R"( "\"")";
  }

  std::string array(Fields& fields, int depth) {
    const auto [min, max] = bounds(fields, "minItems", "maxItems");
    const Json* items = fields.take("items");
    if (max == 0) return R"("[" ws "]")";
    const std::string item = items == nullptr ? "value" : any(*items, depth + 1, ".items");
    std::string list =
        item + R"( ws ("," ws )" + item + " ws)" + repeated(std::max(min - 1, 0LL), max < 0 ? -1 : max - 1);
    if (min == 0) list = "(" + list + ")?";
    return add(R"("[" ws )" + list + R"( "]")");
  }

  // Properties in the schema's order, built from the last one: `none` and `some` are the rules for the properties from
  // i on, when no earlier property is present and when at least one is.
  std::string object(Fields& fields, int depth) {
    fields.boolean("additionalProperties", false);
    const Json* properties = fields.take("properties");
    const Json* required = fields.take("required");
    const std::size_t count = properties == nullptr ? 0 : properties->size();
    if (properties != nullptr && !properties->is_object()) wrong("'properties' must be an object");
    if (required != nullptr && !required->is_array()) wrong("'required' must be a list of names");
    std::set<std::string> names, needed;
    if (properties != nullptr)
      for (const auto& [name, schema] : properties->items()) names.insert(name);
    if (required != nullptr)
      for (const Json& name : *required)
        if (!name.is_string() || !names.contains(*needed.insert(name.get<std::string>()).first))
          wrong("'required' names {}, which 'properties' does not have", name.dump());
    if (count == 0) return properties == nullptr ? "object" : R"("{" ws "}")";

    std::vector<std::string> member;
    std::vector<bool> must;
    for (const auto& [name, schema] : properties->items()) {
      member.push_back(quoted(Json(name).dump()) + R"( ws ":" ws )" + any(schema, depth + 1, ".properties." + name) +
                       " ws ");
      must.push_back(needed.contains(name));
    }
    std::string none = R"("")", some = R"("")";
    for (std::size_t i = count; i-- > 0;) {
      const std::string first = member[i] + some, further = R"("," ws )" + first;
      const std::string next_none = add(must[i] ? first : first + " | " + none);
      some = add(must[i] ? further : further + " | " + some);
      none = next_none;
    }
    return R"(("{" ws )" + none + R"( "}"))";
  }

  std::string reserve() {
    if (rules_.size() >= kMaxRules) wrong("the schema is too large: its grammar has over {} rules", kMaxRules);
    const std::string name = fmt::format("r{}", rules_.size());
    rules_[name];
    return name;
  }
  std::string add(std::string body) {
    const std::string name = reserve();
    rules_[name] = std::move(body);
    return name;
  }

  const Json& schema_;
  std::string path_ = kWhere;
  std::map<std::string, std::string> rules_, references_;
};

}  // namespace

std::string schema_grammar(const Json& schema) {
  return Converter(schema).grammar();
}

std::string json_object_grammar() {
  return std::string("root ::= object\n") + (kCommon + 1);
}

}  // namespace palimpsest
