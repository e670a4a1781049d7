// The negation of a schema: the union of the negations of its keywords.
#include <algorithm>
#include <iterator>

#include "palimpsest/text/schema/expander.h"

namespace palimpsest::schema {
namespace {

constexpr unsigned kNumbers = kInteger | kFraction;

const Json* found(const Json& schema, const char* keyword) {
  const auto at = schema.find(keyword);
  return at == schema.end() ? nullptr : &*at;
}

template <typename List, typename More>
void append_all(List& out, More more) {
  out.insert(out.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

std::vector<Branch> Expander::negated_scalars(const Json& schema, bool& complete) {
  Branches out;
  if (const auto types = types_of(schema)) out.push_back({.types = kAllTypes & ~*types});
  if (const Json* list = found(schema, "enum"); list != nullptr && list->is_array()) {
    Branch others;
    for (const Json& value : *list) others.not_values.push_back(&value);
    out.push_back(std::move(others));
  }
  if (const Json* constant = found(schema, "const")) {
    Branch others;
    others.not_values = {constant};
    out.push_back(std::move(others));
  }
  Branch numbers, strings;
  number_keywords(schema, numbers);
  string_keywords(schema, strings);
  if (numbers.low) {
    Branch below{.types = kNumbers};
    below.high = Bound{numbers.low->value, !numbers.low->open};
    out.push_back(std::move(below));
  }
  if (numbers.high) {
    Branch above{.types = kNumbers};
    above.low = Bound{numbers.high->value, !numbers.high->open};
    out.push_back(std::move(above));
  }
  if (!numbers.multiples.empty()) complete = false;
  if (strings.min_length > 0) {
    Branch shorter{.types = kString};
    shorter.max_length = strings.min_length - 1;
    shorter.lengths_owner = &schema;
    out.push_back(std::move(shorter));
  }
  if (strings.max_length != kUnbounded) {
    Branch longer{.types = kString};
    longer.min_length = strings.max_length + 1;
    longer.lengths_owner = &schema;
    out.push_back(std::move(longer));
  }
  if (schema.contains("pattern") && strings.patterns.empty()) complete = false;
  for (Pattern& each : strings.patterns) {
    Branch other{.types = kString};
    each.negative = true;
    other.patterns = {each};
    out.push_back(std::move(other));
  }
  return out;
}

std::vector<Branch> Expander::negated_applicators(const Json& schema, bool& complete) {
  Branches out;
  for (const char* keyword : {"$ref", "$dynamicRef", "$recursiveRef"})
    if (schema.contains(keyword))
      if (const Json* target = target_of(schema, keyword)) append_all(out, negative(*target, complete));
  if (const Json* all = found(schema, "allOf"); all != nullptr && all->is_array())
    for (const Json& each : *all) append_all(out, negative(each, complete));
  for (const char* keyword : {"anyOf", "oneOf"})
    if (const Json* any = found(schema, keyword); any != nullptr && any->is_array()) {
      Branches none = {Branch()};
      for (const Json& each : *any) none = cross(none, negative(each, complete));
      if (keyword[0] == 'o') complete = false;  // two of them: left out
      append_all(out, std::move(none));
    }
  if (const Json* no = found(schema, "not")) append_all(out, positive(*no));
  if (const Json* condition = found(schema, "if")) {
    const Json* const then = found(schema, "then");
    const Json* const otherwise = found(schema, "else");
    if (then != nullptr) append_all(out, cross(positive(*condition), negative(*then, complete)));
    if (otherwise != nullptr) append_all(out, cross(negative(*condition, complete), negative(*otherwise, complete)));
  }
  return out;
}

std::vector<Branch> Expander::negated_containers(const Json& schema, bool& complete) {
  Branches out;
  Branch arrays, objects;
  array_keywords(schema, arrays);
  object_keywords(schema, objects);
  const auto counted = [&](unsigned type, std::size_t Branch::*min, std::size_t Branch::*max, const Branch& of) {
    if (of.*min > 0) {
      Branch fewer{.types = type};
      fewer.*max = of.*min - 1;
      fewer.counts_owner = &schema;
      out.push_back(std::move(fewer));
    }
    if (of.*max != kUnbounded) {
      Branch more{.types = type};
      more.*min = of.*max + 1;
      more.counts_owner = &schema;
      out.push_back(std::move(more));
    }
  };
  counted(kArray, &Branch::min_items, &Branch::max_items, arrays);
  counted(kObject, &Branch::min_properties, &Branch::max_properties, objects);
  if (arrays.unique != nullptr) complete = false;
  for (const Contains& each : arrays.contains) {
    if (each.min > 1 || each.max != kUnbounded) complete = false;
    if (each.min == 0) continue;
    auto none = std::make_shared<ArrayPart>();
    none->rest = Literal{each.item.schema, false};
    none->evaluates = false;
    Branch without{.types = kArray};
    without.arrays = {std::move(none)};
    out.push_back(std::move(without));
  }
  for (const auto& part : arrays.arrays) {
    for (std::size_t i = 0; i < part->prefix.size(); ++i) {
      auto other = std::make_shared<ArrayPart>();
      other->prefix.assign(i, {&anything(), true});
      other->prefix.push_back({part->prefix[i].schema, false});
      other->evaluates = false;
      Branch branch{.types = kArray};
      branch.arrays = {std::move(other)};
      branch.min_items = i + 1;
      out.push_back(std::move(branch));
    }
    if (!part->rest) continue;
    const std::size_t known = part->prefix.size();  // the item after them is another
    auto other = std::make_shared<ArrayPart>();
    other->prefix.assign(known, {&anything(), true});
    other->prefix.push_back({part->rest->schema, false});
    other->evaluates = false;
    Branch branch{.types = kArray};
    branch.arrays = {std::move(other)};
    branch.min_items = known + 1;
    out.push_back(std::move(branch));
  }
  for (const std::string& name : objects.required) {
    Branch without{.types = kObject};
    without.forbidden = {name};
    out.push_back(std::move(without));
  }
  for (const auto& part : objects.objects) {
    if (part->additional || !part->patterns.empty()) complete = false;
    for (const auto& [name, each] : part->properties) {
      if (each.schema->is_boolean() && each.schema->get<bool>()) continue;
      auto other = std::make_shared<ObjectPart>();
      other->property(name, {each.schema, false});
      other->evaluates = false;
      Branch branch{.types = kObject};
      branch.objects = {std::move(other)};
      branch.required = {name};
      out.push_back(std::move(branch));
    }
  }
  if (!objects.names.empty()) complete = false;
  for (const char* keyword : {"dependentRequired", "dependencies"})
    if (const Json* all = found(schema, keyword); all != nullptr && all->is_object())
      for (const auto& [name, needs] : all->items()) {
        if (!needs.is_array()) complete = false;
        for (const Json& each : needs.is_array() ? needs : Json::array()) {
          Branch branch{.types = kObject};
          branch.required = {name};
          branch.forbidden = {each.get<std::string>()};
          out.push_back(std::move(branch));
        }
      }
  for (const char* keyword : {"dependentSchemas", "unevaluatedProperties", "unevaluatedItems"})
    if (schema.contains(keyword)) complete = false;
  return out;
}

std::vector<Branch> Expander::negative(const Json& schema, bool& complete) {
  if (schema.is_boolean()) return schema.get<bool>() ? Branches() : Branches{Branch()};
  if (!schema.is_object()) return {};
  if (path_.size() > 100) throw TooComplex("the schema refers to itself without end");
  path_.push_back(nullptr);
  Branches out = negated_scalars(schema, complete);
  append_all(out, negated_applicators(schema, complete));
  append_all(out, negated_containers(schema, complete));
  path_.pop_back();
  std::erase_if(out, [&](Branch& branch) { return !prune(branch, 0); });
  if (out.size() > kMaxBranches) throw TooComplex("the schema has too many alternatives");
  return out;
}

}  // namespace palimpsest::schema
