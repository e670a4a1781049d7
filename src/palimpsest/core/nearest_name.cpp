#include "palimpsest/core/nearest_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "palimpsest/core/letter_case.h"

namespace palimpsest {
namespace {

// Optimal string alignment: insertions, deletions, replacements, and swaps of neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates) {
  const std::string given = lower_case(name);
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(2, given.size() / 3) + 1;
  for (const std::string& each : candidates) {
    const std::string candidate = lower_case(each);
    // A beginning is near ("smol"), but not nearer than a slip.
    std::size_t distance = edit_distance(given, candidate);
    if (given.size() >= 3 && candidate.starts_with(given)) distance = std::min<std::size_t>(distance, 2);
    if (distance < best_distance && distance < given.size()) best_distance = distance, best = each;
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const auto near = nearest_name(name, candidates);
  return near ? fmt::format("; did you mean '{}'?", *near) : "";
}

}  // namespace palimpsest
