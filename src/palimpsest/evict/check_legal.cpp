#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/evict/legality.h"

namespace palimpsest {

std::span<const Requirement> requirements() {
  static const std::vector<Requirement> all = [] {
    std::vector<Requirement> rows;
    for (const auto part :
         {general_requirements(), draft_requirements(), layerwise_requirements(), match_requirements(),
          recall_requirements(), lossless_requirements(), position_requirements()})
      rows.insert(rows.end(), part.begin(), part.end());
    return rows;
  }();
  return all;
}

namespace {

const Requirement* first_unmet(Scope scope, const Candidate& candidate) {
  for (const Requirement& row : requirements())
    if (row.scope == scope && row.required(candidate) && !row.offered(candidate)) return &row;
  return nullptr;
}

}  // namespace

bool is_legal(Scope scope, const Candidate& candidate) {
  return first_unmet(scope, candidate) == nullptr;
}

void check_legal(Scope scope, const Candidate& candidate) {
  if (const Requirement* row = first_unmet(scope, candidate)) throw Error(row->sentence(candidate));
}

void validate(const Method& method) {
  check_legal(Scope::kMethod, {.method = method});
}

void check_shares_steps(const Method& method) {
  check_legal(Scope::kShared, {.method = method});
}

}  // namespace palimpsest
