#include "palimpsest/engine/rerotate.h"

#include <cassert>
#include <map>
#include <vector>

#include "palimpsest/attention/turn_keys.h"

namespace palimpsest {
namespace {

struct Run {  // slots that moved down together
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

void rerotate_moved(Cache& cache, const RopeFrequencies& frequencies, Workers* workers) {
  const CacheOptions& o = cache.options();
  assert(o.mechanism != Mechanism::kInPlace);  // there a slot is no rank
  std::vector<std::vector<Run>> runs;
  std::map<int, std::vector<float>> rows;
  for (int t = 0; t < cache.tables(); ++t) {
    runs.push_back(runs_of(cache.moves(t)));
    for (const Run& run : runs.back()) {
      auto& row = rows[run.by];
      if (!row.empty()) continue;
      row.resize(2 * static_cast<std::size_t>(frequencies.pairs()));
      frequencies.row(-run.by, row.data());
      for (float& factor : row) factor = static_cast<float>(factor / frequencies.magnitude());
    }
  }
  const auto turn_head = [&](int index) {
    const int layer = index / o.kv_heads, head = index % o.kv_heads;
    const LayerView view = cache.view(layer);
    for (const Run& run : runs[static_cast<std::size_t>(cache.table_of(layer, head))])
      turn_keys(view, view.head[head], frequencies.kind(), frequencies.dims(), run.first, run.last,
                rows.at(run.by).data());
  };
  const int heads = o.layers * o.kv_heads;
  if (workers != nullptr)
    workers->run(heads, turn_head);
  else
    for (int index = 0; index < heads; ++index) turn_head(index);
}

}  // namespace palimpsest
