// The normal form of a schema: a union of branches. A branch is a conjunction without alternatives; its parts constrain
// the values of one type each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/text/schema/automaton.h"
#include "palimpsest/text/schema/value.h"

namespace palimpsest::schema {

// A schema, or its negation.
struct Literal {
  const Json* schema = nullptr;
  bool positive = true;
  auto operator<=>(const Literal&) const = default;
};
using Conjunction = std::vector<Literal>;  // without duplicates; the order does not depend on addresses

inline void add(Conjunction& all, Literal more) {
  if (std::ranges::find(all, more) == all.end()) all.push_back(more);
}
// The key of a conjunction in maps: the same for every order.
inline Conjunction sorted(Conjunction all) {
  std::ranges::sort(all);
  return all;
}

enum Type : unsigned {
  kNull = 1,
  kTrue = 2,
  kFalse = 4,
  kInteger = 8,
  kFraction = 16,  // numbers that are no integers
  kString = 32,
  kArray = 64,
  kObject = 128,
  kAllTypes = 255
};
Type type_of(const Json& value);

struct Pattern {
  const Json* schema = nullptr;  // whose keyword it is
  std::string text;
  bool negative = false;
  bool operator==(const Pattern&) const = default;
};

struct Bound {
  Decimal value;
  bool open = false;  // the value itself is outside
};

// What one schema object says: additionalProperties is about the properties that are not named beside it.
struct ObjectPart {
  std::vector<std::pair<std::string, Literal>> properties;
  std::map<std::string, Literal> by_name;
  std::vector<std::pair<Pattern, Literal>> patterns;
  std::optional<Literal> additional;  // as written
  bool names_properties = false;      // has the keyword `properties`
  bool evaluates = true;              // for unevaluatedProperties: not within a negation

  void property(const std::string& name, Literal schema) {
    if (by_name.try_emplace(name, schema).second) properties.emplace_back(name, schema);
  }
};

struct ArrayPart {
  std::vector<Literal> prefix;
  std::optional<Literal> rest;
  bool evaluates = true;
};

struct Contains {
  const Json* owner = nullptr;
  Literal item;
  std::size_t min = 1, max = kUnbounded;
};

// A schema that must not hold, and the keyword that says so.
struct Excluded {
  const Json* schema = nullptr;
  const Json* owner = nullptr;
  const char* keyword = "not";
  bool operator==(const Excluded&) const = default;
};

struct Branch {
  unsigned types = kAllTypes;
  std::optional<std::vector<const Json*>> values = {};  // enum, const
  std::vector<const Json*> not_values = {};
  std::optional<Bound> low = {}, high = {};
  std::vector<std::pair<const Json*, Decimal>> multiples = {};  // the schema that says so, multipleOf
  std::vector<Pattern> patterns = {};
  std::vector<std::string> formats = {};
  std::size_t min_length = 0, max_length = kUnbounded;
  const Json* lengths_owner = nullptr;
  std::vector<std::shared_ptr<const ArrayPart>> arrays = {};
  std::size_t min_items = 0, max_items = kUnbounded;
  std::vector<Contains> contains = {};
  const Json* unique = nullptr;  // whose uniqueItems it is
  std::vector<std::shared_ptr<const ObjectPart>> objects = {};
  std::vector<std::string> required = {};
  std::set<std::string> forbidden = {};
  Conjunction names = {};  // propertyNames
  std::size_t min_properties = 0, max_properties = kUnbounded;
  const Json* counts_owner = nullptr;
  std::vector<Excluded> excluded = {};

  bool requires_property(const std::string& name) const { return std::ranges::find(required, name) != required.end(); }
  bool names_property(const std::string& name) const {
    return std::ranges::any_of(objects, [&](const auto& part) { return part->by_name.contains(name); });
  }
  bool plain_objects() const {
    return objects.empty() && required.empty() && forbidden.empty() && names.empty() && min_properties == 0 &&
           max_properties == kUnbounded;
  }
  bool plain_arrays() const {
    return arrays.empty() && min_items == 0 && max_items == kUnbounded && contains.empty() && unique == nullptr;
  }
  bool plain_strings() const {
    return patterns.empty() && formats.empty() && min_length == 0 && max_length == kUnbounded && not_values.empty();
  }
  bool plain_numbers() const { return !low && !high && multiples.empty() && not_values.empty(); }
};

Branch conjunction_of(const Branch& a, const Branch& b);
// The schemas of an array's item.
Conjunction item_of(const Branch& branch, std::size_t index);

}  // namespace palimpsest::schema
