#include "palimpsest/engine/mechanism/rerotate.h"

#include <cassert>
#include <map>
#include <optional>
#include <vector>

#include "palimpsest/attention/rotate_keys.h"
#include "palimpsest/engine/mechanism/query_statistics.h"

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

// Cosines and sines of `by` positions, without the magnitude, which the keys have already.
std::vector<float> rotation_by(const RopeFrequencies& f, Position by) {
  std::vector<float> row(2 * static_cast<std::size_t>(f.pairs()));
  f.row(by, row.data());
  for (float& factor : row) factor = static_cast<float>(factor / f.magnitude());
  return row;
}

// Keys in a storage: the same on rows of f32, [slots][width], in the order of pairs that it keeps.
struct StoredHead {
  CacheStorage& storage;
  int head, slots;
  std::size_t width;
  std::vector<float> keys, values;

  StoredHead(const Cache& cache, int head)
      : storage(*cache.storage()),
        head(head),
        slots(cache.table(cache.table_of(head)).slots()),
        width(static_cast<std::size_t>(cache.geometry().layer_geometry(head).key_width)) {
    const auto count = static_cast<std::size_t>(slots);
    keys.resize(count * width);
    values.resize(count * static_cast<std::size_t>(cache.geometry().layer_geometry(head).value_width));
    storage.read_head(head, slots, keys, values);
  }
  void rotate(const RopeFrequencies& f, int first, int last, const std::vector<float>& row) {
    const RopeKind kind = storage.keeps_halves() ? RopeKind::kHalves : f.kind();
    for (int slot = first; slot < last; ++slot)
      rotate_row(keys.data() + static_cast<std::size_t>(slot) * width, 1, kind, row);
  }
  void write() { storage.write_head(head, slots, keys, values); }
};

template <typename Rotate>
void for_each_head(const Cache& cache, Workers* workers, Rotate rotate) {
  const int heads = cache.geometry().heads();
  if (workers != nullptr)
    workers->run(heads, rotate);
  else
    for (int head = 0; head < heads; ++head) rotate(head);
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
      row = rotation_by(f, -run.by);
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
  for_each_head(cache, workers, rotate_head);
}

void rotate_shifted(Cache& cache, const Hyperparameters& hyper, PositionRange range, Position by, Workers* workers) {
  std::vector<RopeFrequencies> frequencies;  // of each RoPE table
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < hyper.ropes(); ++i) {
    frequencies.emplace_back(hyper.rope_table(i));
    rows.push_back(rotation_by(frequencies.back(), by));
  }
  const bool stored = !cache.options().pages;
  for_each_head(cache, stored ? nullptr : workers, [&](int head) {
    const int layer = cache.geometry().layer_of(head);
    const auto rope = static_cast<std::size_t>(hyper.rope_of(layer));
    if (frequencies[rope].kind() == RopeKind::kNone) return;
    const SlotTable& table = cache.table(cache.table_of(head));
    const LayerView view = cache.view(layer);
    const auto moved = [&](int slot) {
      const Position position = table.position(slot);
      return position != kNoPosition && range.contains(position);
    };
    std::optional<StoredHead> rows_of_head;
    if (stored && table.occupied() > 0) rows_of_head.emplace(cache, head);
    for (int slot = 0; slot < table.slots(); ++slot) {
      if (!moved(slot)) continue;
      const int first = slot;
      while (slot < table.slots() && moved(slot)) ++slot;
      if (rows_of_head)
        rows_of_head->rotate(frequencies[rope], first, slot, rows[rope]);
      else
        rotate_keys(view, cache.head(head), frequencies[rope].kind(), frequencies[rope].dims(), first, slot,
                    rows[rope].data());
    }
    if (rows_of_head) rows_of_head->write();
  });
}

}  // namespace palimpsest
