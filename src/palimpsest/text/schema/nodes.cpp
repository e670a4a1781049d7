#include "palimpsest/text/schema/nodes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "palimpsest/text/schema/numbers.h"

namespace palimpsest::schema {
namespace {

constexpr std::size_t kMaxNodes = 4000, kMaxNameBytes = 3000, kMaxSubset = 200, kMaxPatterns = 4;

using Kind = Alternative::Kind;

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class NodeBuilder {
 public:
  NodeBuilder(Session& session, bool narrow) : session_(session), expander_(session), narrow_(narrow) {}

  Nodes build(const Json& root) {
    node(Conjunction{{&root, true}});
    for (std::size_t i = 0; i < conjunctions_.size(); ++i) {
      const Conjunction conjunction = conjunctions_[i];
      nodes_.any[i] = conjunction.empty();
      if (conjunction.empty()) continue;
      const auto branches = expander_.expand(conjunction);
      for (const Branch& branch : branches) {
        if (branch.types == kAllTypes && !branch.values && branch.plain_strings() && branch.plain_numbers() &&
            branch.plain_arrays() && branch.plain_objects()) {
          nodes_.any[i] = true;
          nodes_.alternatives[i].clear();
          break;
        }
        add_alternatives(narrowed(branch), i);
      }
    }
    remove_unproductive();
    return std::move(nodes_);
  }

 private:
  std::size_t node(const Conjunction& conjunction) {
    const auto [at, made] = numbers_.try_emplace(sorted(conjunction), conjunctions_.size());
    if (made) {
      if (conjunctions_.size() == kMaxNodes) throw TooComplex("the schema has too many combinations of parts");
      session_.work.spend(100);
      conjunctions_.push_back(conjunction);
      nodes_.alternatives.emplace_back();
      nodes_.any.push_back(false);
    }
    return at->second;
  }

  // A schema with properties and without a type is about objects: its other values are valid, but nobody means them.
  Branch narrowed(const Branch& branch) const {
    Branch out = branch;
    if (!narrow_ || branch.types != kAllTypes || branch.values) return out;
    Branch strings = branch, numbers = branch;
    strings.not_values.clear();
    numbers.not_values.clear();
    const unsigned types = (branch.plain_objects() ? 0U : kObject) | (branch.plain_arrays() ? 0U : kArray) |
                           (strings.plain_strings() ? 0U : kString) |
                           (numbers.plain_numbers() ? 0U : kInteger | kFraction);
    if (types != 0) out.types = types;
    return out;
  }

  void add_alternatives(const Branch& branch, std::size_t to) {
    const auto put = [&](Alternative one) { nodes_.alternatives[to].push_back(std::move(one)); };
    if (branch.values) {
      Alternative one;
      for (const Json* value : *branch.values) one.texts.push_back(json_text(*value));
      return put(std::move(one));
    }
    Alternative words;
    for (const auto& [type, text] : {std::pair{kNull, "null"}, std::pair{kTrue, "true"}, std::pair{kFalse, "false"}})
      if ((branch.types & type) != 0) words.texts.emplace_back(text);
    if (!words.texts.empty()) put(std::move(words));
    if ((branch.types & kString) != 0) {
      Alternative one{.kind = Kind::kString};
      one.string = text_of(branch, session_);
      if (!one.string.empty()) put(std::move(one));
    }
    if ((branch.types & (kInteger | kFraction)) != 0) {
      Alternative one{.kind = (branch.types & kFraction) != 0 ? Kind::kNumber : Kind::kInteger};
      if (auto digits = numbers_of(branch, session_); digits != nullptr) {
        one.kind = Kind::kDigits;
        one.digits = std::move(digits);
      }
      if (one.digits == nullptr || !one.digits->empty()) put(std::move(one));
    }
    if ((branch.types & kArray) != 0) add_array(branch, to);
    if ((branch.types & kObject) != 0) add_object(branch, to);
  }

  void add_array(const Branch& branch, std::size_t to) {
    if (branch.plain_arrays()) {
      nodes_.alternatives[to].push_back({.kind = Kind::kAnyArray});
      return;
    }
    std::size_t known = 0;
    for (const auto& part : branch.arrays) known = std::max(known, part->prefix.size());
    Alternative one{.kind = Kind::kArray, .min = branch.min_items, .max = branch.max_items};
    std::vector<Conjunction> items;
    for (std::size_t i = 0; i <= known; ++i) items.push_back(item_of(branch, i));
    for (const Contains& each : branch.contains)
      if (!place(each, items, one) || one.min > one.max) return;
    if (branch.unique != nullptr && one.max > 1 && !(items.size() == 2 && one.max == 1)) {
      if (items.size() == 1 && add_subset(branch, items[0], to)) return;
      session_.drop(branch.unique, "uniqueItems", "it is supported for items with an enum, and for at most one item");
    }
    const Conjunction rest = items.back();
    items.pop_back();
    for (const Conjunction& each : items) one.prefix.push_back(node(each));
    one.rest = node(rest);
    nodes_.alternatives[to].push_back(std::move(one));
  }

  // The first items for which it is possible contain what they must. `items`: the last stands for all others.
  bool place(const Contains& contains, std::vector<Conjunction>& items, Alternative& array) {
    if (contains.max < contains.min) return false;
    std::size_t begin = 0;
    const auto wanted = [&](std::size_t i) {
      Conjunction out = items[std::min(i, items.size() - 1)];
      add(out, contains.item);
      return out;
    };
    if (contains.min > 1000) throw TooComplex("minContains is too large");
    if (contains.min > 0) {
      const std::size_t last = items.size() - 1;
      while (begin < last && expander_.dead(wanted(begin), 2)) ++begin;
      while (items.size() < begin + contains.min + 1) items.insert(items.end() - 1, items.back());
      for (std::size_t i = begin; i < begin + contains.min; ++i) items[i] = wanted(i);
      array.min = std::max(array.min, begin + contains.min);
    }
    if (contains.max != kUnbounded)  // no other item is
      for (std::size_t i = 0; i < items.size(); ++i)
        if (contains.min == 0 || i < begin || i >= begin + contains.min)
          add(items[i], {contains.item.schema, !contains.item.positive});
    return true;
  }

  // An array of different values of an enum, in its order.
  bool add_subset(const Branch& branch, const Conjunction& item, std::size_t to) {
    Alternative one{.kind = Kind::kSubset, .min = branch.min_items, .max = branch.max_items};
    for (const Branch& each : expander_.expand(item)) {
      if (!each.values && (each.types & ~unsigned{kNull | kTrue | kFalse}) != 0) return false;
      if (each.values)
        for (const Json* value : *each.values) one.texts.push_back(json_text(*value));
      else
        for (const auto& [type, text] :
             {std::pair{kNull, "null"}, std::pair{kTrue, "true"}, std::pair{kFalse, "false"}})
          if ((each.types & type) != 0 && std::ranges::find(one.texts, text) == one.texts.end())
            one.texts.emplace_back(text);
    }
    if (one.texts.size() > kMaxSubset) return false;
    one.max = std::min(one.max, one.texts.size());
    if (one.min <= one.max) nodes_.alternatives[to].push_back(std::move(one));
    return true;
  }

  // The texts of the strings that are valid.
  Text strings_of(const Conjunction& conjunction) {
    if (conjunction.empty()) return {};
    Dfa all{.alphabet = any_text().alphabet, .next = {}, .accepts = {}};
    for (const Branch& branch : expander_.expand(conjunction)) {
      if (branch.values) {
        std::vector<std::string> texts;
        for (const Json* value : *branch.values)
          if (value->is_string()) texts.push_back(value->get<std::string>());
        if (!texts.empty()) all = combine(all, texts_of(texts, session_.work), Combine::kOr, session_.work);
      } else if ((branch.types & kString) != 0) {
        const Text text = text_of(branch, session_);
        if (text.any()) return {};
        all = combine(all, dfa_of(text, session_), Combine::kOr, session_.work);
      }
    }
    return simplified(std::make_shared<const Dfa>(std::move(all)));
  }

  void add_object(const Branch& branch, std::size_t to) {
    if (branch.plain_objects()) {
      nodes_.alternatives[to].push_back({.kind = Kind::kAnyObject});
      return;
    }
    Alternative one{.kind = Kind::kObject, .min = branch.min_properties, .max = branch.max_properties};
    const Text keys = strings_of(branch.names);
    const Dfa key_dfa = keys.any() ? any_text() : dfa_of(keys, session_);
    std::set<std::string> known;
    const auto put = [&](const std::string& name) {
      session_.work.spend(branch.required.size() + 10);
      if (!known.insert(name).second || branch.forbidden.contains(name)) return;
      if (!keys.any() && !key_dfa.matches(name)) {
        one.properties.push_back({name, node({{&nothing(), true}}), branch.requires_property(name)});
        return;
      }
      one.properties.push_back({name, node(expander_.property_of(branch, name)), branch.requires_property(name)});
    };
    bool closed = false;
    for (const auto& part : branch.objects) {
      for (const auto& [name, schema] : part->properties)
        if (part->evaluates) put(name);
      closed = closed || (!part->additional && (part->names_properties || !part->patterns.empty()));
    }
    for (const std::string& name : branch.required) put(name);
    known.insert(branch.forbidden.begin(), branch.forbidden.end());
    // More properties than are named: an object that is closed only because its schema does not say that it is open.
    if (closed && one.min > one.properties.size()) closed = false;
    add_extras(branch, known, keys, closed, one);
    nodes_.alternatives[to].push_back(std::move(one));
  }

  // Properties that are not named: those of patternProperties, and any others, unless `closed`.
  void add_extras(const Branch& branch, const std::set<std::string>& known, const Text& keys, bool closed,
                  Alternative& to) {
    std::vector<std::string> patterns;
    for (const auto& part : branch.objects)
      for (const auto& [pattern, schema] : part->patterns)
        if (std::ranges::find(patterns, pattern.text) == patterns.end()) patterns.push_back(pattern.text);
    std::size_t bytes = 0;
    for (const std::string& name : known) bytes += name.size();
    if (closed && patterns.empty()) return;
    if (bytes > kMaxNameBytes) return;  // an automaton of all other names would be large
    Work& work = session_.work;
    const bool small = patterns.size() <= kMaxPatterns;
    const std::size_t subsets = small ? (std::size_t{1} << patterns.size()) : patterns.size() + 1;
    for (std::size_t subset = 0; subset < subsets; ++subset) {
      const auto matched = [&](std::size_t i) { return small ? (subset >> i & 1U) != 0 : subset == i + 1; };
      if (subset == 0 && closed) continue;
      Extra extra;
      if (patterns.empty() && known.empty()) {
        extra.key = keys;
      } else {
        Dfa dfa = keys.any() ? any_text() : dfa_of(keys, session_);
        if (!known.empty()) dfa = combine(dfa, texts_of({known.begin(), known.end()}, work), Combine::kWithout, work);
        for (std::size_t i = 0; i < patterns.size() && !dfa.empty(); ++i)
          dfa = combine(dfa, session_.regexes.get(patterns[i]), matched(i) ? Combine::kAnd : Combine::kWithout, work);
        if (dfa.empty()) continue;
        extra.key = simplified(std::make_shared<const Dfa>(minimized(std::move(dfa), work)));
      }
      Conjunction value;
      for (const auto& part : branch.objects) {
        bool found = false;
        for (const auto& [pattern, schema] : part->patterns)
          for (std::size_t i = 0; i < patterns.size(); ++i)
            if (matched(i) && patterns[i] == pattern.text) {
              add(value, schema);
              found = true;
            }
        if (!found && part->additional) add(value, *part->additional);
      }
      std::erase_if(value, [](const Literal& each) {
        return each.schema->is_boolean() && each.schema->get<bool>() == each.positive;
      });
      extra.node = node(value);
      if (!extra.key.empty()) to.extras.push_back(std::move(extra));
    }
  }

  bool productive(std::size_t node) const { return nodes_.any[node] || productive_[node]; }

  bool is_productive(const Alternative& one) const {
    switch (one.kind) {
      case Kind::kArray: {
        for (std::size_t i = 0; i < std::min(one.min, one.prefix.size()); ++i)
          if (!productive(one.prefix[i])) return false;
        return one.min <= one.prefix.size() || productive(one.rest);
      }
      case Kind::kObject: {
        std::size_t count = 0, required = 0;
        for (const Property& each : one.properties) {
          const bool possible = productive(each.node);
          if (each.required && !possible) return false;
          count += possible ? 1 : 0;
          required += each.required ? 1 : 0;
        }
        const bool extras = std::ranges::any_of(one.extras, [&](const Extra& each) { return productive(each.node); });
        // Further names may be equal, so that only one of them counts.
        return required <= one.max && one.min <= count + (extras ? 1 : 0);
      }
      default:
        return true;
    }
  }

  void remove_unproductive() {
    productive_.assign(nodes_.alternatives.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = nodes_.alternatives.size(); i-- > 0;) {
        session_.work.spend(1 + nodes_.alternatives[i].size() * 4);
        if (productive_[i]) continue;
        productive_[i] =
            std::ranges::any_of(nodes_.alternatives[i], [&](const Alternative& each) { return is_productive(each); });
        changed = changed || productive_[i];
      }
    }
    for (auto& alternatives : nodes_.alternatives) {
      std::erase_if(alternatives, [&](const Alternative& each) { return !is_productive(each); });
      for (Alternative& each : alternatives) {
        std::erase_if(each.properties, [&](const Property& property) { return !productive(property.node); });
        std::erase_if(each.extras, [&](const Extra& extra) { return !productive(extra.node); });
        if (each.kind != Kind::kArray) continue;
        for (std::size_t i = 0; i < each.prefix.size(); ++i)
          if (!productive(each.prefix[i])) {
            each.max = std::min(each.max, i);
            each.prefix.resize(i);
          }
        if (!productive(each.rest)) each.rest = kNoNode;
      }
    }
  }

  Session& session_;
  Expander expander_;
  const bool narrow_;
  Nodes nodes_;
  std::map<Conjunction, std::size_t> numbers_;
  std::vector<Conjunction> conjunctions_;
  std::vector<bool> productive_;
};

}  // namespace

Nodes nodes_of(const Json& root, Session& session) {
  Nodes nodes = NodeBuilder(session, true).build(root);
  if (nodes.any[0] || !nodes.alternatives[0].empty()) return nodes;
  return NodeBuilder(session, false).build(root);
}

}  // namespace palimpsest::schema
