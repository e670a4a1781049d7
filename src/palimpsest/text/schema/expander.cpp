#include "palimpsest/text/schema/expander.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "palimpsest/text/schema/numbers.h"
#include "palimpsest/text/schema/texts.h"
#include "palimpsest/text/schema/validator.h"

namespace palimpsest::schema {
namespace {

constexpr unsigned kNumberTypes = kInteger | kFraction;
constexpr std::size_t kMaxPath = 100;  // of schemas within each other, without a property or item between

// Parts that do not matter for the branch's types are removed.
void forget_other_types(Branch& branch) {
  const unsigned types = branch.types;
  const Branch none;
  if ((types & kNumberTypes) == 0) {
    branch.low.reset();
    branch.high.reset();
    branch.multiples.clear();
  }
  if ((types & kString) == 0) {
    branch.patterns.clear();
    branch.formats.clear();
    branch.min_length = 0;
    branch.max_length = kUnbounded;
  }
  if ((types & kArray) == 0) {
    branch.arrays.clear();
    branch.min_items = 0;
    branch.max_items = kUnbounded;
    branch.contains.clear();
    branch.unique = nullptr;
  }
  if ((types & kObject) == 0) {
    branch.objects.clear();
    branch.required.clear();
    branch.forbidden.clear();
    branch.names.clear();
    branch.min_properties = 0;
    branch.max_properties = kUnbounded;
  }
  std::erase_if(branch.not_values, [&](const Json* value) { return (types & type_of(*value)) == 0; });
}

unsigned group_of(unsigned types) {
  return (types & kNumberTypes) != 0 ? types | kNumberTypes : types;
}

bool constrained(const Branch& branch) {
  return !branch.plain_strings() || !branch.plain_numbers() || !branch.plain_arrays() || !branch.plain_objects() ||
         !branch.not_values.empty();
}

// Joins branches whose types are apart, lists of values, and branches of types only.
void join(std::vector<Branch>& branches) {
  std::vector<Branch> out;
  for (Branch& next : branches) {
    forget_other_types(next);
    bool joined = false;
    for (Branch& each : out) {
      if (!each.excluded.empty() || !next.excluded.empty() || each.values.has_value() != next.values.has_value())
        continue;
      if (each.values) {
        if (constrained(each) || constrained(next) || each.types != next.types) continue;
        each.values->insert(each.values->end(), next.values->begin(), next.values->end());
      } else if ((group_of(each.types) & group_of(next.types)) == 0 || (!constrained(each) && !constrained(next))) {
        const unsigned types = each.types | next.types;
        each = conjunction_of(each, next);
        each.types = types;
      } else {
        continue;
      }
      joined = true;
      break;
    }
    if (!joined) out.push_back(std::move(next));
  }
  branches = std::move(out);
}

}  // namespace

const Json& anything() {
  static const Json schema = true;
  return schema;
}

const Json& nothing() {
  static const Json schema = false;
  return schema;
}

std::vector<Branch> Expander::cross(const Branches& a, const Branches& b) {
  Branches out;
  for (const Branch& x : a)
    for (const Branch& y : b) {
      const auto values = [](const Branch& branch) { return branch.values ? branch.values->size() : 0; };
      session_.work.spend(300 + 10 * (x.objects.size() + y.objects.size()) +
                          x.required.size() * (1 + y.required.size()) +
                          (x.not_values.size() + values(x)) * (y.not_values.size() + values(y)));
      Branch both = conjunction_of(x, y);
      if (!prune(both, 0)) continue;
      if (out.size() == kMaxBranches) throw TooComplex("the schema has too many combinations of alternatives");
      out.push_back(std::move(both));
    }
  if (out.size() > 1) join(out);
  return out;
}

const Json* Expander::target_of(const Json& schema, const char* keyword) {
  const Json& reference = schema[keyword];
  if (!reference.is_string()) {
    session_.drop(&schema, keyword, "it must be a string");
    return nullptr;
  }
  const std::string text = reference.get<std::string>();
  const Json* const target =
      keyword[1] == 'd' ? session_.document.dynamic_target(&schema, text) : session_.document.resolve(&schema, text);
  if (target == nullptr)
    session_.drop(&schema, keyword,
                  fmt::format("'{}' leads nowhere: references within the schema are supported", text.substr(0, 100)));
  return target;
}

std::vector<Branch> Expander::positive(const Json& schema) {
  if (schema.is_boolean()) return schema.get<bool>() ? Branches{Branch()} : Branches();
  if (!schema.is_object()) {
    session_.drop(&schema, "", fmt::format("a schema must be a JSON object, not {}", brief(schema)));
    return {Branch()};
  }
  if (const auto known = positives_.find(&schema); known != positives_.end()) return known->second;
  if (std::ranges::find(path_, &schema) != path_.end() || path_.size() > kMaxPath) {
    session_.drop(&schema, "", "the schema refers to itself without end");
    return {Branch()};
  }
  path_.push_back(&schema);
  Branches out = expand_positive(schema);
  path_.pop_back();
  positives_[&schema] = out;
  return out;
}

std::vector<Branch> Expander::expand_positive(const Json& schema) {
  session_.work.spend(20 + schema.size());
  Branch base;
  base_keywords(schema, base);
  string_keywords(schema, base);
  number_keywords(schema, base);
  array_keywords(schema, base);
  object_keywords(schema, base);
  if (!prune(base, 0)) return {};
  Branches out = {std::move(base)};
  combinators(schema, out);
  dependencies(schema, out);
  unevaluated(schema, out);
  return out;
}

void Expander::combinators(const Json& schema, Branches& out) {
  for (const char* keyword : {"$ref", "$dynamicRef", "$recursiveRef"})
    if (schema.contains(keyword))
      if (const Json* target = target_of(schema, keyword)) out = cross(out, positive(*target));
  const auto list = [&](const char* keyword) -> const Json* {
    const auto at = schema.find(keyword);
    if (at == schema.end()) return nullptr;
    if (at->is_array() && !at->empty()) return &*at;
    session_.drop(&schema, keyword, "it must be a list of at least one schema");
    return nullptr;
  };
  if (const Json* all = list("allOf"))
    for (const Json& each : *all) out = cross(out, positive(each));
  const auto add_all = [](Branches& to, Branches more) {
    to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    if (to.size() > 1) join(to);
  };
  if (const Json* any = list("anyOf")) {
    Branches alternatives;
    for (const Json& each : *any) add_all(alternatives, positive(each));
    out = cross(out, alternatives);
  }
  if (const Json* one = list("oneOf")) {
    Branches alternatives;
    for (const Json& each : *one) {
      Branches more = positive(each);
      for (Branch& branch : more)
        for (const Json& other : *one)
          if (&other != &each) branch.excluded.push_back({&other, &schema, "oneOf"});
      add_all(alternatives, std::move(more));
    }
    out = cross(out, alternatives);
  }
  if (const auto no = schema.find("not"); no != schema.end())
    for (Branch& branch : out) branch.excluded.push_back({&*no, &schema, "not"});
  if (const auto condition = schema.find("if"); condition != schema.end()) {
    const auto then = schema.find("then"), otherwise = schema.find("else");
    if (then == schema.end() && otherwise == schema.end()) return;
    Branches yes = positive(*condition);
    if (then != schema.end()) yes = cross(yes, positive(*then));
    Branches no = otherwise != schema.end() ? positive(*otherwise) : Branches{Branch()};
    for (Branch& branch : no) branch.excluded.push_back({&*condition, &schema, "if"});
    add_all(yes, std::move(no));
    out = cross(out, yes);
  }
}

void Expander::dependencies(const Json& schema, Branches& out) {
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const auto all = schema.find(keyword);
    if (all == schema.end()) continue;
    if (!usable(schema, *all, keyword, Json::value_t::object, "an object")) continue;
    for (const auto& [name, needs] : all->items()) {
      if (needs.is_boolean() && needs.get<bool>()) continue;
      if (needs.is_array() && needs.empty()) continue;
      Branch other{.types = kAllTypes & ~unsigned{kObject}}, without{.types = kObject}, with{.types = kObject};
      without.forbidden = {name};
      with.required = {name};
      Branches present = {with};
      if (needs.is_array()) {
        for (const Json& each : needs)
          if (each.is_string() && !present.front().requires_property(each.get<std::string>()))
            present.front().required.push_back(each.get<std::string>());
      } else {
        present = cross(present, positive(needs));
      }
      Branches either = {without};
      either.insert(either.end(), present.begin(), present.end());
      either.push_back(other);
      join(either);
      out = cross(out, either);
    }
  }
}

void Expander::unevaluated(const Json& schema, Branches& out) {
  if (const auto rest = schema.find("unevaluatedProperties"); rest != schema.end())
    for (Branch& branch : out) {
      auto part = std::make_shared<ObjectPart>();
      part->additional = Literal{&*rest, true};
      bool all = false;
      for (const auto& each : branch.objects) {
        if (!each->evaluates) continue;
        all = all || each->additional.has_value();
        for (const auto& [name, property] : each->properties) part->property(name, {&anything(), true});
        for (const auto& [pattern, property] : each->patterns)
          part->patterns.emplace_back(pattern, Literal{&anything(), true});
      }
      if (!all) branch.objects.push_back(std::move(part));
    }
  if (const auto rest = schema.find("unevaluatedItems"); rest != schema.end())
    for (Branch& branch : out) {
      auto part = std::make_shared<ArrayPart>();
      part->rest = Literal{&*rest, true};
      bool all = false;
      for (const auto& each : branch.arrays) {
        if (!each->evaluates) continue;
        all = all || each->rest.has_value();
        if (part->prefix.size() < each->prefix.size()) part->prefix.resize(each->prefix.size(), {&anything(), true});
      }
      if (!all) branch.arrays.push_back(std::move(part));
    }
}

Conjunction Expander::property_of(const Branch& branch, const std::string& name) {
  Conjunction out;
  for (const auto& part : branch.objects) {
    bool known = false;
    if (const auto at = part->by_name.find(name); at != part->by_name.end()) {
      add(out, at->second);
      known = true;
    }
    for (const auto& [pattern, schema] : part->patterns) {
      session_.work.spend(name.size() + 1);
      if (!session_.regexes.get(pattern.text).matches(name)) continue;
      add(out, schema);
      known = true;
    }
    if (!known && part->additional) add(out, *part->additional);
  }
  std::erase_if(
      out, [](const Literal& each) { return each.schema->is_boolean() && each.schema->get<bool>() == each.positive; });
  return out;
}

bool Expander::prune(Branch& branch, int levels) {
  const auto without = [&](unsigned types) { branch.types &= ~types; };
  if (branch.values) {
    std::erase_if(*branch.values, [&](const Json* value) {
      return (branch.types & type_of(*value)) == 0 ||
             std::ranges::any_of(branch.not_values, [&](const Json* other) { return same_value(*value, *other); });
    });
    return !branch.values->empty();
  }
  if (branch.low && branch.high) {
    const int order = compare(branch.low->value, branch.high->value);
    if (order > 0 || (order == 0 && (branch.low->open || branch.high->open))) without(kNumberTypes);
  }
  if (branch.max_length < branch.min_length) without(kString);
  if (branch.max_items < branch.min_items) without(kArray);
  for (const std::string& name : branch.required)
    if (branch.forbidden.contains(name)) without(kObject);
  if (branch.max_properties < std::max(branch.min_properties, branch.required.size())) without(kObject);
  for (const Json* value : branch.not_values) {
    const Type type = type_of(*value);
    if (type == kNull || type == kTrue || type == kFalse) without(type);
  }
  if (levels > 0) {
    if ((branch.types & kString) != 0 && !branch.plain_strings() && text_of(branch, session_).empty()) without(kString);
    if ((branch.types & kNumberTypes) != 0 && !branch.plain_numbers())
      if (const auto numbers = numbers_of(branch, session_); numbers != nullptr && numbers->empty())
        without(kNumberTypes);
    if ((branch.types & kObject) != 0)
      for (const std::string& name : branch.required)
        if (dead(property_of(branch, name), levels - 1)) without(kObject);
    if ((branch.types & kArray) != 0)
      for (std::size_t i = 0; i < std::min<std::size_t>(branch.min_items, 20); ++i)
        if (dead(item_of(branch, i), levels - 1)) without(kArray);
  }
  return branch.types != 0;
}

bool Expander::dead(const Conjunction& conjunction, int levels) {
  if (conjunction.empty() || open_.contains(sorted(conjunction))) return false;
  for (const Literal& each : conjunction)
    if (each.schema->is_boolean() && each.schema->get<bool>() != each.positive) return true;
  Branches branches = expand(conjunction);
  return std::ranges::none_of(branches, [&](Branch& branch) { return prune(branch, levels); });
}

bool Expander::disjoint(const Branch& branch, const Json& schema) {
  Branches both = cross({branch}, positive(schema));
  return std::ranges::none_of(both, [&](Branch& each) { return prune(each, 3); });
}

// Replaces the schemas that must not hold: they cannot, or a keyword of them does not.
void Expander::resolve(Branch branch, Branches& out, int depth) {
  if (branch.excluded.empty() || branch.values) {
    branch.excluded.clear();
    if (out.size() == kMaxBranches) throw TooComplex("the schema has too many alternatives");
    out.push_back(std::move(branch));
    return;
  }
  if (depth > 300) throw TooComplex("the schema excludes too many others");
  const Excluded other = branch.excluded.back();
  branch.excluded.pop_back();
  Branch plain = branch;
  plain.excluded.clear();
  if (disjoint(plain, *other.schema)) return resolve(std::move(branch), out, depth + 1);
  bool complete = true, found = false;
  const bool closed = std::ranges::any_of(branch.objects, [](const auto& part) { return part->names_properties; });
  for (const Branch& no : negative(*other.schema, complete)) {
    Branch both = conjunction_of(branch, no);
    if (!prune(both, 0)) continue;
    unsigned containers = 0;  // other arrays and objects than these: not supported
    for (const Json* value : both.not_values) containers |= both.types & type_of(*value) & (kArray | kObject);
    if (containers != 0) {
      complete = false;
      both.types &= ~containers;
      if (!prune(both, 0)) continue;
    }
    // A property that only the excluded schema names is not made up.
    const bool unknown = closed && std::ranges::any_of(no.required, [&](const std::string& name) {
                           return !branch.names_property(name) && !branch.requires_property(name);
                         });
    if (unknown) {
      complete = false;
      continue;
    }
    found = true;
    resolve(std::move(both), out, depth + 1);
  }
  if (found || complete) return;
  session_.drop(other.owner, other.keyword,
                other.keyword[0] == 'o' ? "its alternatives are not disjoint, so that exactly one cannot be enforced: "
                                          "use anyOf, or give them a required property with different values"
                : other.keyword[0] == 'i' ? "the negation of 'if' is not supported for its keywords"
                                          : "it is not supported for its keywords");
  resolve(std::move(branch), out, depth + 1);
}

void Expander::keep_valid(const Conjunction& conjunction, Branches& branches) {
  Validator validator(session_.document, session_.regexes);
  Branches out;
  Branch values;
  values.values.emplace();
  for (Branch& branch : branches) {
    if (!branch.values) {
      out.push_back(std::move(branch));
      continue;
    }
    for (const Json* value : *branch.values) {
      session_.work.spend(4 * values.values->size() + 1);
      const bool known =
          std::ranges::any_of(*values.values, [&](const Json* other) { return same_value(*value, *other); });
      if (known) continue;
      bool valid = true;
      for (const Literal& each : conjunction) {
        try {
          valid = valid && validator.valid(*value, *each.schema) == each.positive;
        } catch (const TooComplex&) {
          throw;
        } catch (const Error&) {  // a keyword that was dropped
        }
      }
      if (valid) values.values->push_back(value);
    }
  }
  if (!values.values->empty()) out.push_back(std::move(values));
  branches = std::move(out);
}

const std::vector<Branch>& Expander::expand(const Conjunction& conjunction) {
  const Conjunction key = sorted(conjunction);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  open_.insert(key);
  std::vector<const Json*> path;
  std::swap(path, path_);  // a property or item: a reference back is a recursion that ends
  Branches all = {Branch()};
  for (const Literal& each : conjunction) {
    if (each.positive)
      all = cross(all, positive(*each.schema));
    else
      for (Branch& branch : all) branch.excluded.push_back({each.schema, each.schema, "not"});
  }
  Branches out;
  for (Branch& branch : all) resolve(std::move(branch), out, 0);
  for (Branch& branch : out) forget_other_types(branch);
  std::erase_if(out, [&](Branch& branch) { return !prune(branch, 0); });
  keep_valid(conjunction, out);
  if (out.size() > 1) join(out);
  std::swap(path, path_);
  open_.erase(key);
  return known_.insert_or_assign(key, std::move(out)).first->second;
}

}  // namespace palimpsest::schema
