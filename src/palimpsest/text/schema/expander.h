// Schemas to branches: keywords beside each other are conjunctions, negations are moved down to single keywords.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "palimpsest/text/schema/branch.h"
#include "palimpsest/text/schema/session.h"

namespace palimpsest::schema {

class Expander {
 public:
  explicit Expander(Session& session) : session_(session) {}

  // The branches of a conjunction; none: no value is valid. With values: those that are valid. Throws TooComplex for
  // more than kMaxBranches.
  const std::vector<Branch>& expand(const Conjunction& conjunction);
  // The schemas that the value of a property must be valid for.
  Conjunction property_of(const Branch& branch, const std::string& name);
  // Whether no value is valid, as far as can be seen in `levels` levels of properties and items.
  bool dead(const Conjunction& conjunction, int levels);

  static constexpr std::size_t kMaxBranches = 200;

 private:
  using Branches = std::vector<Branch>;

  Branches positive(const Json& schema);
  // `complete`: false if a keyword's negation is not supported, and left out.
  Branches negative(const Json& schema, bool& complete);
  Branches expand_positive(const Json& schema);
  void base_keywords(const Json& schema, Branch& out);
  void string_keywords(const Json& schema, Branch& out);
  void number_keywords(const Json& schema, Branch& out);
  void array_keywords(const Json& schema, Branch& out);
  void object_keywords(const Json& schema, Branch& out);
  void combinators(const Json& schema, Branches& out);
  void dependencies(const Json& schema, Branches& out);
  void unevaluated(const Json& schema, Branches& out);
  Branches negated_scalars(const Json& schema, bool& complete);
  Branches negated_applicators(const Json& schema, bool& complete);
  Branches negated_containers(const Json& schema, bool& complete);

  Branches cross(const Branches& a, const Branches& b);
  // Removes types without values; false: none is left.
  bool prune(Branch& branch, int levels);
  bool disjoint(const Branch& branch, const Json& schema);
  void resolve(Branch branch, Branches& out, int depth);
  void keep_valid(const Conjunction& conjunction, Branches& branches);

  std::optional<unsigned> types_of(const Json& schema);
  const Json* target_of(const Json& schema, const char* keyword);
  bool usable(const Json& schema, const Json& value, const char* keyword, Json::value_t type, const char* needed);
  std::optional<std::size_t> count(const Json& schema, const char* keyword);

  Session& session_;
  std::map<Conjunction, Branches> known_;
  std::set<Conjunction> open_;
  std::map<const Json*, Branches> positives_;
  std::vector<const Json*> path_;  // schemas that are being expanded
};

const Json& anything();  // the schema true
const Json& nothing();   // the schema false

}  // namespace palimpsest::schema
