// Attention weights per slot over many queries: column sums in a second pass.

#if defined(PALIMPSEST_ATTENTION_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_COLUMNS_INL_H_
#undef PALIMPSEST_ATTENTION_COLUMNS_INL_H_
#else
#define PALIMPSEST_ATTENTION_COLUMNS_INL_H_
#endif

#include "palimpsest/attention/attend-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

// Recomputes scores, now that each row's log-sum is known, and sums the weights that queries first_query ..
// last_query - 1 give to a split of slots into memory.column.
HWY_NOINLINE void sum_columns(const HeadStep& w, int unit, int first_query, int last_query, const UnitMemory& memory) {
  const int first = unit * kSplit, slots = std::min(kSplit, w.slots().slots - first), group = w.group();
  const WeightReduction as = w.tokens->weight_reduction;
  std::fill_n(memory.column, kSplit, 0.0f);
  if (first_query == last_query) return;
  for (int block_query = first_query / w.block_queries * w.block_queries; block_query < last_query;
       block_query += w.block_queries) {
    const int from = std::max(first_query, block_query);
    const Unit u{w, memory, from, std::min(block_query + w.block_queries, last_query) - from};
    prepare_queries(u);
    std::uint64_t visible[kRows];
    for (int n = 0; n * kBlock < slots; ++n) {
      const int block = first / kBlock + n;
      const Block b = find_block(u, block, Tiles(w, block), visible);
      if (b.used == 0) continue;
      score_block(u, b, true, Prefetch());
      for (int v = 0; v < kVectors; ++v) {
        Vec received = hn::LoadU(df, memory.column + n * kBlock + v * kLanes), group_max = hn::Zero(df);
        for (int r = 0; r < u.rows(); ++r) {
          const Vec score = hn::LoadU(df, memory.score + r * kBlock + v * kLanes);
          const Vec p = pow2(hn::Min(hn::Zero(df), hn::Sub(score, hn::Set(df, w.log_sum[from * group + r]))));
          add_weight(as, (r + 1) % group == 0, hn::IfThenElseZero(mask_of(visible[r / group], v), p), group_max,
                     received);
        }
        hn::StoreU(received, df, memory.column + n * kBlock + v * kLanes);
      }
    }
  }
}

HWY_NOINLINE void column_sums(const HeadStep& w, int unit, const UnitMemory& memory) {
  const int first = unit * kSplit, slots = std::min(kSplit, w.slots().slots - first);
  int query = w.tokens->count - w.late_queries();
  const Vec share = hn::Set(
      df, w.tokens->weight_reduction == WeightReduction::kMeanOverGroup ? 1 / static_cast<float>(w.group()) : 1);
  if (w.sums != nullptr) {
    sum_columns(w, unit, 0, query, memory);
    for (int s = 0; s < slots; s += kLanes)
      hn::StoreU(hn::Mul(share, hn::LoadU(df, memory.column + s)), df, w.sums + first + s);
  }
  float* to = w.received + first;
  for (int row = 0; row < w.weight_rows(); ++row, to += w.tokens->weights_stride) {
    sum_columns(w, unit, query, query + w.row_queries(row), memory);
    query += w.row_queries(row);
    for (int s = 0; s < slots; s += kLanes) {
      const Vec received = hn::Mul(share, hn::LoadU(df, memory.column + s));
      hn::StoreU(received, df, to + s);
      if (w.sums != nullptr) hn::StoreU(hn::Add(received, hn::LoadU(df, w.sums + first + s)), df, w.sums + first + s);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
