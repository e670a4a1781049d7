// The weights that slots received, of many queries: column sums by a second pass.

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

// Scores once more, now that each row's sum is known.
template <class T>
HWY_NOINLINE void column_sums(const HeadWork& w, int unit, const UnitMemory& memory) {
  const int first = unit * kSplit, slots = std::min(kSplit, w.slots().slots - first), group = w.group();
  const std::int64_t wanted = w.tokens->count - static_cast<std::int64_t>(w.tokens->weights_queries);
  const Received as = w.tokens->received_as;
  const Vec share = hn::Set(df, as == Received::kMean ? 1 / static_cast<float>(group) : 1);
  std::fill_n(memory.column, kSplit, 0.0f);
  for (int query_block = 0; query_block < w.query_blocks; ++query_block) {
    const int first_query = query_block * w.block_queries;
    const Unit<T> u{w, memory, first_query, std::min(w.block_queries, w.tokens->count - first_query)};
    if (first_query + u.queries <= wanted) continue;
    prepare_queries(u);
    std::uint64_t visible[kRows];
    for (int n = 0; n * kBlock < slots; ++n) {
      const int block = first / kBlock + n;
      const Block<T> b = find_block(u, block, Tiles<T>(w, block), visible);
      if (b.used == 0) continue;
      score_block(u, b, true, Ahead());
      for (int v = 0; v < kVectors; ++v) {
        Vec received = hn::LoadU(df, memory.column + n * kBlock + v * kLanes), greatest = hn::Zero(df);
        for (int r = 0; r < u.rows(); ++r) {
          if (first_query + r / group < wanted) continue;
          const Vec score = hn::LoadU(df, memory.score + r * kBlock + v * kLanes);
          const Vec p = pow2(hn::Min(hn::Zero(df), hn::Sub(score, hn::Set(df, w.log_sum[first_query * group + r]))));
          add_weight(as, (r + 1) % group == 0, hn::IfThenElseZero(mask_of(visible[r / group], v), p), greatest,
                     received);
        }
        hn::StoreU(received, df, memory.column + n * kBlock + v * kLanes);
      }
    }
  }
  for (int s = 0; s < slots; s += kLanes)
    hn::StoreU(hn::Mul(share, hn::LoadU(df, memory.column + s)), df, w.received + first + s);
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
