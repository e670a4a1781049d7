#include "palimpsest/budget/pyramid.h"

#include <cassert>

namespace palimpsest {

std::vector<int> pyramid_budgets(int budget, int guarded, int layers, long long tokens) {
  constexpr int kSteepness = 20;
  const int each = budget - guarded;
  assert(each >= 0 && layers >= 1);
  std::vector<int> budgets(static_cast<std::size_t>(layers), budget);
  if (layers == 1 || (tokens >= 0 && (tokens < budget || tokens < 2LL * each))) return budgets;
  int last = each / kSteepness, first = 2 * each - last;
  if (tokens >= 0 && first > tokens - guarded) {
    first = static_cast<int>(tokens - guarded);
    last = 2 * each - first;
  }
  const int step = (first - last) / (layers - 1);
  for (int layer = 0; layer < layers; ++layer)
    budgets[static_cast<std::size_t>(layer)] = guarded + first - layer * step;
  return budgets;
}

}  // namespace palimpsest
