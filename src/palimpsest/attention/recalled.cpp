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
  float* score;   // [rows][blocks * kBlock] of all keys, then 2^(score - max) of the chosen pages
  float* best;    // [pages] greatest score
  int* order;     // [pages]
  float* values;  // [16][value_dim padded]
  float* sum;     // [group][value_dim padded] weighted values
  float* max;     // [group] greatest score
  float* total;   // [group] sum of 2^(score - max)
  std::size_t floats;

  RecallMemory(const AttentionShape& shape, const Recalled& r, float* memory) : floats(UnitMemory::floats(shape)) {
    if (memory != nullptr) unit.cut(shape, memory);
    const auto take = [&](int count) {
      float* const taken = memory == nullptr ? nullptr : memory + floats;
      floats += round_up(static_cast<std::size_t>(count), kTile);
      return taken;
    };
    const int group = shape.group(),
              width = static_cast<int>(round_up(static_cast<std::size_t>(shape.value_dim), kTile));
    score = take(group * queries_at_once(shape) * ((r.pages.pages + 3) / 4) * kBlock);
    best = take(r.pages.pages);
    order = reinterpret_cast<int*>(take(r.pages.pages));
    values = take(kTile * width);
    sum = take(group * width);
    max = take(group);
    total = take(group);
  }
};

}  // namespace
}  // namespace palimpsest

#endif

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

// The scores of all keys of the tier, of the unit's rows; of lanes without a token: kNothing.
HWY_INLINE void score_tier(const Unit& u, const RecallPages& pages, const RecallMemory& m, int row_stride) {
  const auto tile = [&](int page) { return page < pages.pages ? pages.page[page] : nullptr; };
  for (int first = 0; first < pages.pages; first += 4) {
    Block b{};
    b.tiles = std::min(4, pages.pages - first);
    for (int t = 0; t < b.tiles; ++t) b.used |= std::uint64_t{pages.present[first + t]} << (t * kTile);
    const std::byte* next[4];
    for (int t = 0; t < 4; ++t) {
      b.key[t] = pages.page[t < b.tiles ? first + t : first];
      next[t] = tile(first + 4 + t);
    }
    dot_block(u, b, u.widens(), prefetch_of(next, key_tile_bytes(*u.work.cache)));
    if (u.shape().soft_cap > 0) cap_scores(u);
    for (int r = 0; r < u.rows(); ++r)
      for (int v = 0; v < b.tiles * kTile / kLanes; ++v) {
        const Vec score = hn::LoadU(df, u.memory.score + r * kBlock + v * kLanes);
        hn::StoreU(hn::IfThenElse(mask_of(b.used, v), score, hn::Set(df, kNothing)), df,
                   m.score + static_cast<std::ptrdiff_t>(r) * row_stride + first * kTile + v * kLanes);
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

// 2^(score - max) of the chosen pages, in place; RecallMemory::max and total.
HWY_INLINE void soft_max_of(const RecallMemory& m, int chosen, float* score, int g) {
  Vec top = hn::Set(df, kNothing), total = hn::Zero(df);
  for (int n = 0; n < chosen; ++n)
    for (int v = 0; v < kTile; v += kLanes) top = hn::Max(top, load(score + m.order[n] * kTile + v));
  m.max[g] = hn::ReduceMax(df, top);
  if (m.max[g] == kNothing) return;
  for (int n = 0; n < chosen; ++n)
    for (int v = 0; v < kTile; v += kLanes) {
      float* const at = score + m.order[n] * kTile + v;
      const Vec power = pow2(hn::Sub(load(at), hn::Set(df, m.max[g])));
      hn::StoreU(power, df, at);
      total = hn::Add(total, power);
    }
  m.total[g] = hn::ReduceSum(df, total);
}

HWY_INLINE void add_values(const Recalled& r, const ValueKernels& values, const RecallMemory& m, int page, int width,
                           const float* score, int group, int row_stride) {
  const std::uint32_t present = r.pages.present[page];
  if (present == 0) return;
  values.widen(r.pages.page[page] + value_offset(r.layout), r.layout.value_dim, present, m.values, width);
  for (int g = 0; g < group; ++g) {
    const float* const weight = score + static_cast<std::ptrdiff_t>(g) * row_stride + page * kTile;
    float* const to = m.sum + std::ptrdiff_t{g} * width;
    for (int lane = 0; lane < kTile; ++lane) {
      if ((present >> lane & 1) == 0) continue;
      const Vec w = hn::Set(df, weight[lane]);
      const float* const value = m.values + std::ptrdiff_t{lane} * width;
      for (int d = 0; d < width; d += kLanes) hn::StoreU(hn::MulAdd(w, load(value + d), load(to + d)), df, to + d);
    }
  }
}

void AttendRecalled(const LayerStep& step, int sequence, int kv_head, const Recalled& r, float* memory) {
  const AttentionShape& shape = step.shape;
  const int group = shape.group(), value_dim = shape.value_dim;
  const int width = static_cast<int>(round_up(static_cast<std::size_t>(value_dim), kTile));
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
  for (int first = 0; first < w.tokens->count; first += queries_at_once(shape)) {
    const Unit u{w, m.unit, first, std::min(queries_at_once(shape), w.tokens->count - first)};
    prepare_queries(u);
    score_tier(u, r.pages, m, row_stride);
    for (int q = 0; q < u.queries; ++q) {
      float* const score = m.score + static_cast<std::ptrdiff_t>(q) * group * row_stride;
      const int chosen = choose_pages(r, m, score, group, row_stride);
      for (int g = 0; g < group; ++g) soft_max_of(m, chosen, score + static_cast<std::ptrdiff_t>(g) * row_stride, g);
      std::fill_n(m.sum, group * width, 0.0f);
      for (int n = 0; n < chosen; ++n) add_values(r, *w.values, m, m.order[n], width, score, group, row_stride);
      for (int g = 0; g < group; ++g) {
        if (m.max[g] == kNothing) continue;
        float* const recalled = m.sum + std::ptrdiff_t{g} * width;
        if (w.values->finish != nullptr) w.values->finish(recalled, value_dim);
        const float kept = log_sums[(first + q) * group + g], all = std::max(kept, m.max[g]);
        const float of_kept = pow2(kept - all), of_recalled = pow2(m.max[g] - all);
        const float inverse = 1 / (of_kept + of_recalled * m.total[g]);
        float* const out = step.out.at(w.tokens->first + first + q, kv_head * group + g);
        for (int d = 0; d < value_dim; ++d) out[d] = (of_kept * out[d] + of_recalled * recalled[d]) * inverse;
      }
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
