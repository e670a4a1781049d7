#include "palimpsest/attention/recalled.h"

#include <algorithm>
#include <cmath>

#include "palimpsest/attention/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/recalled.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "palimpsest/attention/attend-inl.h"

#ifndef PALIMPSEST_ATTENTION_RECALLED_ONCE_
#define PALIMPSEST_ATTENTION_RECALLED_ONCE_

namespace palimpsest {
namespace {

int queries_at_once(const AttentionShape& shape) {
  return std::max(1, kRows / shape.group());
}

// A thread's memory, cut into arrays.
struct RecallMemory {
  UnitMemory unit;
  float* score;  // [rows][blocks * kBlock] of all keys
  float* best;   // [pages] greatest score
  int* order;    // [pages]
  std::size_t floats;

  RecallMemory(const AttentionShape& shape, const Recalled& r, float* memory) : floats(UnitMemory::floats(shape)) {
    if (memory != nullptr) unit.cut(shape, memory);
    const auto take = [&](int count) {
      float* const taken = memory == nullptr ? nullptr : memory + floats;
      floats += round_up(static_cast<std::size_t>(count), kTile);
      return taken;
    };
    score = take(shape.group() * queries_at_once(shape) * ((r.pages.pages + 3) / 4) * kBlock);
    best = take(r.pages.pages);
    order = reinterpret_cast<int*>(take(r.pages.pages));
  }
};

}  // namespace
}  // namespace palimpsest

#endif

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

// Pages first .. first + 3 of the first `count` pages of RecallMemory::order.
HWY_INLINE Block block_of(const Recalled& r, const RecallMemory& m, int first, int count) {
  Block b{};
  b.tiles = std::min(4, count - first);
  for (int t = 0; t < 4; ++t) {
    const int page = m.order[t < b.tiles ? first + t : first];
    b.key[t] = r.pages.page[page];
    b.value[t] = r.pages.page[page] + value_offset(r.layout);
    if (t < b.tiles) b.used |= std::uint64_t{r.pages.present[page]} << (t * kTile);
  }
  return b;
}

HWY_INLINE void score_keys(const Unit& u, const Block& b, const Prefetch& prefetch) {
  dot_block(u, b, u.widens(), prefetch);
  if (u.shape().soft_cap > 0) cap_scores(u);
}

// The scores of all keys of the tier, of the unit's rows; of lanes without a token: kNothing.
HWY_INLINE void score_tier(const Unit& u, const Recalled& r, const RecallMemory& m, int row_stride) {
  const int pages = r.pages.pages;
  for (int page = 0; page < pages; ++page) m.order[page] = page;
  for (int first = 0; first < pages; first += 4) {
    const std::byte* next[4];
    for (int t = 0; t < 4; ++t) next[t] = first + 4 + t < pages ? r.pages.page[first + 4 + t] : nullptr;
    const Block b = block_of(r, m, first, pages);
    score_keys(u, b, prefetch_of(next, key_tile_bytes(*u.work.cache)));
    for (int row = 0; row < u.rows(); ++row)
      for (int v = 0; v < b.tiles * kTile / kLanes; ++v) {
        const Vec score = hn::LoadU(df, u.memory.score + row * kBlock + v * kLanes);
        hn::StoreU(hn::IfThenElse(mask_of(b.used, v), score, hn::Set(df, kNothing)), df,
                   m.score + static_cast<std::ptrdiff_t>(row) * row_stride + first * kTile + v * kLanes);
      }
  }
}

// The pages that the rows of one query recall: the first of RecallMemory::order. Returns their number.
HWY_INLINE int choose_pages(const Recalled& r, const RecallMemory& m, const float* score, int group, int row_stride) {
  const int pages = r.pages.pages, chosen = std::min(pages, r.max_pages);
  for (int p = 0; p < pages; ++p) m.order[p] = p;
  if (chosen == pages) return chosen;
  for (int p = 0; p < pages; ++p) {
    Vec best = hn::Set(df, kNothing);
    for (int g = 0; g < group; ++g)
      for (int v = 0; v < kTile; v += kLanes)
        best = hn::Max(best, load(score + static_cast<std::ptrdiff_t>(g) * row_stride + p * kTile + v));
    m.best[p] = hn::ReduceMax(df, best);
  }
  std::nth_element(m.order, m.order + chosen, m.order + pages,
                   [&](int a, int b) { return m.best[a] != m.best[b] ? m.best[a] > m.best[b] : a < b; });
  std::sort(m.order, m.order + chosen);  // sums do not depend on the way of the selection
  return chosen;
}

// Attention of one query to the first `count` pages of RecallMemory::order: UnitMemory::value, max and sum.
HWY_INLINE void attend_pages(const Unit& u, const Recalled& r, const RecallMemory& m, int count) {
  prepare_queries(u);
  std::fill_n(u.memory.value, u.rows() * u.value_stride(), 0.0f);
  std::fill_n(u.memory.sum, u.rows() * kTile, 0.0f);
  std::fill_n(u.memory.max, u.rows(), kNothing);
  for (int first = 0; first < count; first += 4) {
    const Block b = block_of(r, m, first, count);
    if (b.used == 0) continue;
    score_keys(u, b, prefetch_of(b.value, value_tile_bytes(*u.work.cache)));
    online_softmax(u, &b.used);
    add_block(u, b, u.widens(), Prefetch());
  }
}

void AttendRecalled(const LayerStep& step, int sequence, int kv_head, const Recalled& r, float* memory) {
  const AttentionShape& shape = step.shape;
  const int group = shape.group(), value_dim = shape.value_dim;
  const int row_stride = (r.pages.pages + 3) / 4 * kBlock;
  const RecallMemory m(shape, r, memory);
  const float* const log_sums = step.log_sums[sequence * shape.kv_heads + kv_head];
  HeadStep w{};
  w.step = &step;
  w.keys = &key_kernels_of(r.layout.key_type);
  w.values = &value_kernels_of(r.layout.value_type);
  w.cache = &r.layout;
  w.tokens = &step.tokens[sequence];
  w.pages = &step.cache[sequence].head[kv_head];  // of the kept tokens: where queries are
  w.kv_head = kv_head;
  w.window = INT32_MAX;
  const bool chooses = r.chooses || r.choice.page == nullptr || *r.choice.count < 0 || r.pages.pages <= r.max_pages;
  for (int first = 0; first < w.tokens->count; first += queries_at_once(shape)) {
    const Unit u{w, m.unit, first, std::min(queries_at_once(shape), w.tokens->count - first)};
    if (chooses) {
      prepare_queries(u);
      score_tier(u, r, m, row_stride);
    }
    for (int q = 0; q < u.queries; ++q) {
      int chosen = 0;
      if (chooses)
        chosen = choose_pages(r, m, m.score + static_cast<std::ptrdiff_t>(q) * group * row_stride, group, row_stride);
      else
        chosen = static_cast<int>(std::copy_n(r.choice.page, *r.choice.count, m.order) - m.order);
      const Unit one{w, m.unit, first + q, 1};
      attend_pages(one, r, m, chosen);
      for (int g = 0; g < group; ++g) {
        const float max = m.unit.max[g];
        if (max == kNothing) continue;
        float* const recalled = m.unit.value + std::ptrdiff_t{g} * one.value_stride();
        if (w.values->finish != nullptr) w.values->finish(recalled, value_dim);
        const float kept = log_sums[(first + q) * group + g], all = std::max(kept, max);
        const float of_kept = pow2(kept - all), of_recalled = pow2(max - all);
        const float sum = hn::ReduceSum(df, hn::LoadU(df, m.unit.sum + g * kTile));
        const float inverse = 1 / (of_kept + of_recalled * sum);
        float* const out = step.out.at(w.tokens->first + first + q, kv_head * group + g);
        for (int d = 0; d < value_dim; ++d) out[d] = (of_kept * out[d] + of_recalled * recalled[d]) * inverse;
      }
      if (chooses && r.choice.page != nullptr && first + q + 1 == w.tokens->count)
        *r.choice.count = static_cast<int>(std::copy_n(m.order, chosen, r.choice.page) - r.choice.page);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(AttendRecalled);

std::size_t recalled_floats(const AttentionShape& shape, const Recalled& recalled) {
  return RecallMemory(shape, recalled, nullptr).floats;
}

void attend_recalled(const LayerStep& step, int sequence, int kv_head, const Recalled& recalled, float* memory) {
  HWY_DYNAMIC_DISPATCH(AttendRecalled)(step, sequence, kv_head, recalled, memory);
}

}  // namespace palimpsest
#endif
