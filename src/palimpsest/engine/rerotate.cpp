#include "palimpsest/engine/rerotate.h"

#include <cassert>
#include <map>
#include <vector>

#include "palimpsest/attention/rotate_keys.h"

namespace palimpsest {
namespace {

struct Run {  // consecutive slots that moved down by the same distance
  int first, last, by;
};

std::vector<Run> runs_of(std::span<const Move> moves) {
  std::vector<Run> runs;
  for (const Move& move : moves) {
    if (move.from == move.to) continue;
    if (!runs.empty() && runs.back().last == move.to && runs.back().by == move.from - move.to)
      ++runs.back().last;
    else
      runs.push_back({move.to, move.to + 1, move.from - move.to});
  }
  return runs;
}

}  // namespace

void rerotate_moved(Cache& cache, std::span<const RopeFrequencies> frequencies, Workers* workers) {
  const CacheOptions& o = cache.options();
  assert(traits(o.mechanism).moves_rows);  // slots are not ranks there
  std::vector<std::vector<Run>> runs;
  std::map<std::pair<int, int>, std::vector<float>> rows;  // [layer, distance]
  for (int t = 0; t < cache.tables(); ++t) runs.push_back(runs_of(cache.moves(t)));
  for (int head = 0; head < o.geometry.heads(); ++head) {
    const int layer = o.geometry.layer_of(head);
    const RopeFrequencies& f = frequencies[static_cast<std::size_t>(layer)];
    for (const Run& run : runs[static_cast<std::size_t>(cache.table_of(head))]) {
      auto& row = rows[{layer, run.by}];
      if (!row.empty()) continue;
      row.resize(2 * static_cast<std::size_t>(f.pairs()));
      f.row(-run.by, row.data());
      for (float& factor : row) factor = static_cast<float>(factor / f.magnitude());
    }
  }
  const auto rotate_head = [&](int head) {
    const int layer = o.geometry.layer_of(head);
    const LayerView view = cache.view(layer);
    for (const Run& run : runs[static_cast<std::size_t>(cache.table_of(head))])
      rotate_keys(view, cache.head(head), frequencies[static_cast<std::size_t>(layer)].kind(),
                  frequencies[static_cast<std::size_t>(layer)].dims(), run.first, run.last,
                  rows.at({layer, run.by}).data());
  };
  const int heads = o.geometry.heads();
  if (workers != nullptr)
    workers->run(heads, rotate_head);
  else
    for (int head = 0; head < heads; ++head) rotate_head(head);
}

}  // namespace palimpsest
