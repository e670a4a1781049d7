#include "palimpsest/text/schema/document.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "palimpsest/core/error.h"

namespace palimpsest::schema {
namespace {

constexpr std::array<std::string_view, 12> kSchemas = {"additionalProperties",
                                                       "items",
                                                       "contains",
                                                       "not",
                                                       "if",
                                                       "then",
                                                       "else",
                                                       "propertyNames",
                                                       "unevaluatedItems",
                                                       "unevaluatedProperties",
                                                       "additionalItems",
                                                       "contentSchema"};
constexpr std::array<std::string_view, 5> kLists = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
constexpr std::array<std::string_view, 6> kMembers = {"properties",  "patternProperties", "$defs",
                                                      "definitions", "dependentSchemas",  "dependencies"};

void check_size(const Json& root) {
  std::vector<std::pair<const Json*, int>> open = {{&root, 0}};
  std::size_t count = 1;
  while (!open.empty()) {
    const auto [one, level] = open.back();
    open.pop_back();
    if (!one->is_structured()) continue;
    count += one->size();
    if (count > kMaxValues) fail("the schema has more than {} values: make it smaller", kMaxValues);
    if (level > 4 * kMaxLevels) fail("the schema is nested too deep: at most {} levels are taken", kMaxLevels);
    for (const Json& each : *one) open.emplace_back(&each, level + 1);
  }
}

std::string percent_decoded(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      const char c = at < text.size() ? text[at] : 'x';
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                    : -1;
    };
    if (text[i] == '%' && digit(i + 1) >= 0 && digit(i + 2) >= 0) {
      out += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

struct Uri {
  std::string scheme, authority, path, query;
  bool has_authority = false, has_query = false;
};

Uri parsed(std::string text) {
  Uri out;
  const std::size_t colon = text.find_first_of(":/?#");
  if (colon != std::string::npos && colon > 0 && text[colon] == ':') {
    out.scheme = text.substr(0, colon);
    text.erase(0, colon + 1);
  }
  if (text.starts_with("//")) {
    const std::size_t end = std::min(text.find_first_of("/?", 2), text.size());
    out.has_authority = true;
    out.authority = text.substr(2, end - 2);
    text.erase(0, end);
  }
  if (const auto mark = text.find('?'); mark != std::string::npos) {
    out.has_query = true;
    out.query = text.substr(mark + 1);
    text.resize(mark);
  }
  out.path = text;
  return out;
}

std::string without_dots(const std::string& path) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  bool slash = false;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    slash = part == "." || part == "..";
    if (part == ".." && parts.size() > 1) parts.pop_back();
    if (!slash) parts.push_back(part);
    begin = end + 1;
  }
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) out += (i > 0 ? "/" : "") + parts[i];
  return slash ? out + "/" : out;
}

}  // namespace

std::string resolved_uri(const std::string& base, const std::string& reference) {
  Uri to = parsed(reference);
  const Uri from = parsed(base);
  if (to.scheme.empty()) {
    to.scheme = from.scheme;
    if (!to.has_authority) {
      to.has_authority = from.has_authority;
      to.authority = from.authority;
      if (to.path.empty()) {
        to.path = from.path;
        if (!to.has_query) {
          to.has_query = from.has_query;
          to.query = from.query;
        }
      } else if (to.path[0] != '/') {
        const auto slash = from.path.rfind('/');
        to.path =
            (slash == std::string::npos ? (from.has_authority ? "/" : "") : from.path.substr(0, slash + 1)) + to.path;
      }
    }
  }
  to.path = to.path.starts_with("/") ? without_dots(to.path) : to.path;
  return (to.scheme.empty() ? "" : to.scheme + ":") + (to.has_authority ? "//" + to.authority : "") + to.path +
         (to.has_query ? "?" + to.query : "");
}

Holds holds(std::string_view keyword, const Json& value) {
  const auto is_in = [&](const auto& list) { return std::ranges::find(list, keyword) != list.end(); };
  if (value.is_array()) return is_in(kLists) ? Holds::kList : Holds::kNothing;
  if (is_in(kSchemas)) return Holds::kSchema;
  return value.is_object() && is_in(kMembers) ? Holds::kMembers : Holds::kNothing;
}

Document::Document(const Json& root) : root_(root) {
  check_size(root);
  resources_[""] = &root;
  index(root, "", 0);
}

void Document::index(const Json& schema, const std::string& base, int level) {
  if (level > kMaxLevels) fail("the schema is nested more than {} levels deep: make it flatter", kMaxLevels);
  if (!schema.is_object()) return;
  const std::string* uri = &resources_.find(base)->first;
  for (const char* keyword : {"$id", "id"}) {
    const auto id = schema.find(keyword);
    if (id == schema.end() || !id->is_string() || (keyword[0] == 'i' && schema.contains("$id"))) continue;
    const std::string text = id->get<std::string>();
    const std::size_t hash = text.find('#');
    if (hash == 0) {
      anchors_.try_emplace(*uri + text, &schema);  // the anchors of draft 7
      continue;
    }
    uri = &resources_.try_emplace(resolved_uri(*uri, text.substr(0, hash)), &schema).first->first;
  }
  bases_[&schema] = uri;
  for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
    const auto anchor = schema.find(keyword);
    if (anchor == schema.end() || !anchor->is_string()) continue;
    const std::string name = anchor->get<std::string>();
    anchors_.try_emplace(*uri + "#" + name, &schema);
    if (keyword[1] == 'd' && !dynamic_anchors_.try_emplace(name, &schema).second)
      repeated_dynamic_anchors_.insert(name);
  }
  for (const auto& [keyword, value] : schema.items()) {
    const Holds kind = holds(keyword, value);
    if (kind == Holds::kSchema) index(value, *uri, level + 1);
    if (kind == Holds::kList || kind == Holds::kMembers)
      for (const Json& each : value) index(each, *uri, level + 1);
  }
}

const Json* Document::at_fragment(const Json* root, const std::string& uri, std::string fragment) const {
  fragment = percent_decoded(fragment);
  if (fragment.empty()) return root;
  if (fragment[0] != '/') {
    const auto anchor = anchors_.find(uri + "#" + fragment);
    return anchor == anchors_.end() ? nullptr : anchor->second;
  }
  try {
    const Json::json_pointer pointer(fragment);
    return root->contains(pointer) ? &root->at(pointer) : nullptr;
  } catch (const Json::exception&) {
    return nullptr;
  }
}

const Json* Document::resolve(const Json* at, const std::string& reference) const {
  const std::size_t hash = std::min(reference.find('#'), reference.size());
  const auto base = bases_.find(at);
  const std::string from = base == bases_.end() ? "" : *base->second;
  const std::string uri = hash == 0 ? from : resolved_uri(from, reference.substr(0, hash));
  const auto resource = resources_.find(uri);
  if (resource == resources_.end()) return nullptr;
  return at_fragment(resource->second, uri, hash < reference.size() ? reference.substr(hash + 1) : "");
}

const Json* Document::dynamic_target(const Json* at, const std::string& reference) const {
  const Json* const target = resolve(at, reference);
  const auto hash = reference.find('#');
  if (target == nullptr || hash == std::string::npos || !target->is_object() || !target->contains("$dynamicAnchor"))
    return target;
  return repeated_dynamic_anchors_.contains(reference.substr(hash + 1)) ? nullptr : target;
}

std::string Document::path_of(const Json* schema) const {
  std::vector<std::pair<const Json*, std::string>> open = {{&root_, ""}};
  while (!open.empty()) {
    const auto [one, path] = std::move(open.back());
    open.pop_back();
    if (one == schema) return path.size() <= 400 ? path : path.substr(0, 400) + "...";
    if (one->is_object())
      for (const auto& [name, value] : one->items())
        open.emplace_back(&value, path.size() > 1000 ? path : path + "." + name.substr(0, 60));
    if (one->is_array())
      for (std::size_t i = 0; i < one->size(); ++i) open.emplace_back(&(*one)[i], path + "[" + std::to_string(i) + "]");
  }
  return "";
}

}  // namespace palimpsest::schema
