#include "palimpsest/text/schema/branch.h"

#include <iterator>

namespace palimpsest::schema {
namespace {

template <typename List>
void append(List& out, const List& more) {
  for (const auto& each : more)
    if (std::ranges::find(out, each) == out.end()) out.push_back(each);
}

// The narrower of two bounds; `sign`: 1 for the larger, -1 for the smaller.
void narrow(std::optional<Bound>& out, const std::optional<Bound>& more, int sign) {
  if (!more) return;
  const int order = out ? compare(more->value, out->value) * sign : 1;
  if (order > 0 || (order == 0 && more->open)) out = more;
}

}  // namespace

Type type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return kNull;
    case Json::value_t::boolean:
      return value.get<bool>() ? kTrue : kFalse;
    case Json::value_t::string:
      return kString;
    case Json::value_t::array:
      return kArray;
    case Json::value_t::object:
      return kObject;
    default:
      return decimal_of(value).is_integer() ? kInteger : kFraction;
  }
}

Branch conjunction_of(const Branch& a, const Branch& b) {
  Branch out = a;
  out.types &= b.types;
  if (b.values) {
    if (!out.values) {
      out.values = b.values;
    } else {
      std::erase_if(*out.values, [&](const Json* value) {
        return std::ranges::none_of(*b.values, [&](const Json* other) { return same_value(*value, *other); });
      });
    }
  }
  append(out.not_values, b.not_values);
  narrow(out.low, b.low, 1);
  narrow(out.high, b.high, -1);
  append(out.multiples, b.multiples);
  append(out.patterns, b.patterns);
  append(out.formats, b.formats);
  out.min_length = std::max(a.min_length, b.min_length);
  out.max_length = std::min(a.max_length, b.max_length);
  if (out.lengths_owner == nullptr) out.lengths_owner = b.lengths_owner;
  append(out.arrays, b.arrays);
  out.min_items = std::max(a.min_items, b.min_items);
  out.max_items = std::min(a.max_items, b.max_items);
  out.contains.insert(out.contains.end(), b.contains.begin(), b.contains.end());
  if (out.unique == nullptr) out.unique = b.unique;
  append(out.objects, b.objects);
  append(out.required, b.required);
  out.forbidden.insert(b.forbidden.begin(), b.forbidden.end());
  for (const Literal& each : b.names) add(out.names, each);
  out.min_properties = std::max(a.min_properties, b.min_properties);
  out.max_properties = std::min(a.max_properties, b.max_properties);
  if (out.counts_owner == nullptr) out.counts_owner = b.counts_owner;
  append(out.excluded, b.excluded);
  return out;
}

Conjunction item_of(const Branch& branch, std::size_t index) {
  Conjunction out;
  for (const auto& part : branch.arrays) {
    if (index < part->prefix.size())
      add(out, part->prefix[index]);
    else if (part->rest)
      add(out, *part->rest);
  }
  return out;
}

}  // namespace palimpsest::schema
