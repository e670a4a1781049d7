// A schema document: its size is checked; $id, $anchor and $ref in it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "palimpsest/text/schema/value.h"

namespace palimpsest::schema {

// Keywords whose value is a schema, a list of schemas, or an object of schemas.
enum class Holds { kNothing, kSchema, kList, kMembers };
Holds holds(std::string_view keyword, const Json& value);

class Document {
 public:
  // `root` must outlive it. Throws Error for more than kMaxValues values or kMaxLevels levels.
  explicit Document(const Json& root);

  // The schema that a $ref in `at` leads to; nullptr: there is none in this document.
  const Json* resolve(const Json* at, const std::string& reference) const;
  const Json* dynamic_target(const Json* at, const std::string& reference) const;  // if there is only one
  std::string path_of(const Json* schema) const;                                   // ".properties.a"; "" for the root

 private:
  void index(const Json& schema, const std::string& base, int level);
  const Json* at_fragment(const Json* root, const std::string& uri, std::string fragment) const;

  const Json& root_;
  std::unordered_map<const Json*, const std::string*> bases_;
  std::map<std::string, const Json*> resources_;  // by URI without a fragment
  std::map<std::string, const Json*> anchors_;    // by URI and fragment
  std::map<std::string, const Json*> dynamic_anchors_;
  std::unordered_set<std::string> repeated_dynamic_anchors_;
};

inline constexpr std::size_t kMaxValues = 30'000;  // in a schema, of any kind
inline constexpr int kMaxLevels = 64;              // of schemas

std::string resolved_uri(const std::string& base, const std::string& reference);  // RFC 3986, section 5

}  // namespace palimpsest::schema
