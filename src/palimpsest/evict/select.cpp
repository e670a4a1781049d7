#include "palimpsest/evict/select.h"

#include <algorithm>
#include <cassert>

namespace palimpsest {
namespace {

// One pass; the branch on a new minimum is rare and well predicted.
int lowest(std::span<const float> score, std::span<const Position> position, Guard guard) {
  int best = -1;
  float least = 0;
  Position age = 0;
  for (std::size_t s = 0; s < score.size(); ++s) {
    if (!guard.admits(position[s])) continue;
    if (best >= 0 && (score[s] > least || (score[s] == least && position[s] > age))) continue;
    best = static_cast<int>(s);
    least = score[s];
    age = position[s];
  }
  return best;
}

}  // namespace

void select_lowest(std::span<const float> score, std::span<const Position> position, Guard guard, int count,
                   std::vector<int>& chosen) {
  assert(score.size() == position.size() && guard.first >= 0);
  chosen.clear();
  if (count == 0) return;
  if (count == 1) {
    chosen.push_back(lowest(score, position, guard));
    assert(chosen.front() >= 0);
    return;
  }
  chosen.reserve(score.size());
  for (std::size_t s = 0; s < score.size(); ++s)
    if (guard.admits(position[s])) chosen.push_back(static_cast<int>(s));
  assert(static_cast<int>(chosen.size()) >= count);
  const auto at = [](int slot) { return static_cast<std::size_t>(slot); };
  const auto older = [&](int a, int b) { return position[at(a)] < position[at(b)]; };
  const auto leaves_first = [&](int a, int b) {
    return score[at(a)] != score[at(b)] ? score[at(a)] < score[at(b)] : older(a, b);
  };
  if (static_cast<std::size_t>(count) < chosen.size())
    std::nth_element(chosen.begin(), chosen.begin() + count, chosen.end(), leaves_first);
  chosen.resize(at(count));
  std::sort(chosen.begin(), chosen.end(), older);
}

}  // namespace palimpsest
