#include "palimpsest/engine/sequence/draft_rows.h"

#include <algorithm>

#include "palimpsest/attention/store_token.h"

namespace palimpsest {

void DraftRows::begin(const Cache& cache, int drafts) {
  const HeadGeometry& geometry = cache.geometry();
  rows_.resize(at(geometry.heads()));
  of_head_.resize(rows_.size());
  if (!cache.options().pages) {
    for (int t = 0; cache.storage() != nullptr && t < cache.tables(); ++t)
      cache.storage()->reserve_moves(t, cache.slots() + drafts);
    return;
  }
  for (std::size_t head = 0; head < rows_.size(); ++head) {
    const LayerGeometry& g = geometry.layer_geometry(static_cast<int>(head));
    const std::size_t floats = at(drafts) * at(g.key_width + g.value_width);
    rows_[head].resize(std::max(rows_[head].size(), floats));
    of_head_[head] = rows_[head].data();
  }
}

void DraftRows::store(const Cache& cache, int index) const {
  if (CacheStorage* const storage = cache.storage()) {
    for (int t = 0; t < cache.tables(); ++t) {
      const Move move{.from = storage->draft_slot(index), .to = cache.table(t).inserted().front()};
      storage->on_moves(t, std::span(&move, 1));
    }
    return;
  }
  const HeadGeometry& geometry = cache.geometry();
  for (int layer = 0; layer < geometry.layers(); ++layer) {
    const LayerView view = cache.view(layer);
    for (int h = 0; h < view.kv_heads; ++h) {
      const HeadPages& head = view.head[h];
      const float* const row =
          of_head_[at(geometry.head(layer, h))] + static_cast<std::ptrdiff_t>(index) * (view.head_dim + view.value_dim);
      store_token(view, head, head.slots->inserted[0], row, row + view.head_dim);
    }
  }
}

}  // namespace palimpsest
