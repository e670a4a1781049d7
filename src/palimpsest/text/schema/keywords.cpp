// Keywords of one type each.
#include <algorithm>
#include <array>
#include <string_view>

#include "palimpsest/text/schema/expander.h"

namespace palimpsest::schema {
namespace {

constexpr std::pair<std::string_view, unsigned> kTypeNames[] = {
    {"null", kNull},     {"boolean", kTrue | kFalse}, {"integer", kInteger}, {"number", kInteger | kFraction},
    {"string", kString}, {"array", kArray},           {"object", kObject},
};

bool is_schema(const Json& value) {
  return value.is_object() || value.is_boolean();
}

}  // namespace

// Whether the keyword's value has the type; otherwise it is dropped.
bool Expander::usable(const Json& schema, const Json& value, const char* keyword, Json::value_t type,
                      const char* needed) {
  if (value.type() == type) return true;
  session_.drop(&schema, keyword, fmt::format("it must be {}, not {}", needed, brief(value)));
  return false;
}

std::optional<std::size_t> Expander::count(const Json& schema, const char* keyword) {
  const auto at = schema.find(keyword);
  if (at == schema.end()) return std::nullopt;
  const auto value = count_of(*at);
  if (!value) session_.drop(&schema, keyword, fmt::format("it must be a whole number from 0 on, not {}", brief(*at)));
  return value;
}

std::optional<unsigned> Expander::types_of(const Json& schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) return std::nullopt;
  unsigned out = 0;
  const auto add_type = [&](const Json& each) {
    for (const auto& [name, types] : kTypeNames)
      if (each.is_string() && each.get_ref<const std::string&>() == name) {
        out |= types;
        return true;
      }
    session_.drop(&schema, "type",
                  fmt::format("{} is none of object, array, string, number, integer, boolean and null", brief(each)));
    return false;
  };
  if (!type->is_array()) return add_type(*type) ? std::optional(out) : std::nullopt;
  if (type->empty()) {
    session_.drop(&schema, "type", "it must be a type or a list of at least one");
    return std::nullopt;
  }
  for (const Json& each : *type)
    if (!add_type(each)) return std::nullopt;
  return out;
}

void Expander::base_keywords(const Json& schema, Branch& out) {
  if (const auto types = types_of(schema)) out.types = *types;
  if (const auto list = schema.find("enum"); list != schema.end()) {
    if (list->is_array() && !list->empty()) {
      out.values.emplace();
      for (const Json& value : *list) out.values->push_back(&value);
    } else {
      session_.drop(&schema, "enum", "it must be a list of at least one value");
    }
  }
  if (const auto constant = schema.find("const"); constant != schema.end()) {
    Branch one;
    one.values = {&*constant};
    out = conjunction_of(out, one);
  }
}

void Expander::string_keywords(const Json& schema, Branch& out) {
  if (session_.coarse) return;
  if (const auto min = count(schema, "minLength")) out.min_length = *min;
  if (const auto max = count(schema, "maxLength")) out.max_length = *max >= 1'000'000'000 ? kUnbounded : *max;
  out.lengths_owner = &schema;
  if (const auto format = schema.find("format"); format != schema.end() && format->is_string())
    out.formats = {format->get<std::string>()};
  const auto pattern = schema.find("pattern");
  if (pattern == schema.end() || !usable(schema, *pattern, "pattern", Json::value_t::string, "a regular expression"))
    return;
  const std::string text = pattern->get<std::string>();
  try {
    session_.regexes.get(text);
    out.patterns = {{&schema, text, false}};
  } catch (const Error& error) {
    session_.drop(&schema, "pattern", error.what());
  }
}

void Expander::number_keywords(const Json& schema, Branch& out) {
  if (session_.coarse) return;
  const auto bound = [&](const char* keyword, const char* exclusive, int sign) {
    const auto take = [&](const Json& value, bool open) {
      Branch one;
      (sign > 0 ? one.low : one.high) = Bound{decimal_of(value), open};
      out = conjunction_of(out, one);
    };
    const auto closed = schema.find(keyword), opened = schema.find(exclusive);
    const bool flag = opened != schema.end() && opened->is_boolean();  // draft 4
    if (closed != schema.end()) {
      if (closed->is_number())
        take(*closed, flag && opened->get<bool>());
      else
        session_.drop(&schema, keyword, fmt::format("it must be a number, not {}", brief(*closed)));
    }
    if (opened != schema.end() && !flag) {
      if (opened->is_number())
        take(*opened, true);
      else
        session_.drop(&schema, exclusive, fmt::format("it must be a number, not {}", brief(*opened)));
    }
  };
  bound("minimum", "exclusiveMinimum", 1);
  bound("maximum", "exclusiveMaximum", -1);
  const auto multiple = schema.find("multipleOf");
  if (multiple == schema.end()) return;
  if (multiple->is_number() && *multiple > 0)
    out.multiples.emplace_back(&schema, decimal_of(*multiple));
  else
    session_.drop(&schema, "multipleOf", fmt::format("it must be a number above 0, not {}", brief(*multiple)));
}

void Expander::array_keywords(const Json& schema, Branch& out) {
  if (const auto min = count(schema, "minItems")) out.min_items = *min;
  if (const auto max = count(schema, "maxItems")) out.max_items = *max >= 1'000'000'000 ? kUnbounded : *max;
  auto part = std::make_shared<ArrayPart>();
  auto items = schema.find("items");
  auto prefix = schema.find("prefixItems");
  const char* prefix_name = "prefixItems";
  const char* items_name = "items";
  if (items != schema.end() && items->is_array()) {  // drafts before 2020-12
    prefix = items;
    prefix_name = "items";
    items_name = "additionalItems";
    items = schema.find(items_name);
  }
  if (prefix != schema.end() && usable(schema, *prefix, prefix_name, Json::value_t::array, "a list of schemas"))
    for (const Json& each : *prefix) part->prefix.push_back({&each, true});
  if (items != schema.end()) {
    if (is_schema(*items))
      part->rest = Literal{&*items, true};
    else
      session_.drop(&schema, items_name, fmt::format("it must be a schema, not {}", brief(*items)));
  }
  if (part->rest || !part->prefix.empty()) out.arrays.push_back(std::move(part));
  if (const auto contains = schema.find("contains"); contains != schema.end()) {
    if (is_schema(*contains)) {
      Contains one{.owner = &schema, .item = {&*contains, true}};
      one.min = count(schema, "minContains").value_or(1);
      one.max = count(schema, "maxContains").value_or(kUnbounded);
      out.contains.push_back(one);
    } else {
      session_.drop(&schema, "contains", fmt::format("it must be a schema, not {}", brief(*contains)));
    }
  }
  if (const auto unique = schema.find("uniqueItems"); unique != schema.end() && *unique == true) out.unique = &schema;
}

void Expander::object_keywords(const Json& schema, Branch& out) {
  if (const auto min = count(schema, "minProperties")) out.min_properties = *min;
  if (const auto max = count(schema, "maxProperties")) out.max_properties = *max;
  out.counts_owner = &schema;
  auto part = std::make_shared<ObjectPart>();
  const auto properties = schema.find("properties");
  if (properties != schema.end() && usable(schema, *properties, "properties", Json::value_t::object, "an object")) {
    part->names_properties = true;
    for (const auto& [name, each] : properties->items()) part->property(name, {&each, true});
  }
  const auto patterns = schema.find("patternProperties");
  if (patterns != schema.end() && usable(schema, *patterns, "patternProperties", Json::value_t::object, "an object"))
    for (const auto& [pattern, each] : patterns->items()) {
      try {
        session_.regexes.get(pattern);
        part->patterns.emplace_back(Pattern{&schema, pattern, false}, Literal{&each, true});
      } catch (const Error& error) {
        session_.drop(&schema, "patternProperties", error.what());
      }
    }
  if (const auto additional = schema.find("additionalProperties"); additional != schema.end()) {
    if (is_schema(*additional))
      part->additional = Literal{&*additional, true};
    else
      session_.drop(&schema, "additionalProperties", fmt::format("it must be a schema, not {}", brief(*additional)));
  }
  if (part->names_properties || part->additional || !part->patterns.empty()) out.objects.push_back(std::move(part));
  const auto required = schema.find("required");
  if (required != schema.end() && usable(schema, *required, "required", Json::value_t::array, "a list of names"))
    for (const Json& name : *required) {
      session_.work.spend(out.required.size() + 1);
      if (!name.is_string())
        session_.drop(&schema, "required", fmt::format("it must be a list of names, {} is none", brief(name)));
      else if (!out.requires_property(name.get_ref<const std::string&>()))
        out.required.push_back(name.get<std::string>());
    }
  if (const auto names = schema.find("propertyNames"); names != schema.end()) {
    if (is_schema(*names))
      add(out.names, {&*names, true});
    else
      session_.drop(&schema, "propertyNames", fmt::format("it must be a schema, not {}", brief(*names)));
  }
}

}  // namespace palimpsest::schema
