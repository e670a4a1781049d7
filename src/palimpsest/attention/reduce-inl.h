// The step after `attend`: reduces splits, and sums the kept weights per slot.

#if defined(PALIMPSEST_ATTENTION_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_REDUCE_INL_H_
#undef PALIMPSEST_ATTENTION_REDUCE_INL_H_
#else
#define PALIMPSEST_ATTENTION_REDUCE_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "palimpsest/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

// For a head with merged tokens: sums the weights of slots and entries over blocks of queries, for each row of weights;
// `sums` adds those of the earlier queries.
HWY_INLINE void reduce_clusters(const HeadStep& w) {
  if (w.received == nullptr) return;
  const std::size_t all = w.cluster_weights(), blocks = static_cast<std::size_t>(w.blocks()) * kBlock;
  const std::size_t slots = w.slots().slots, entries = w.merged->entries();
  const auto write = [&](float* to, int first, int last) {
    std::fill_n(to, slots + entries, 0.0f);
    for (int n = 0; n < w.query_blocks; ++n) {
      const float* const from = w.clusters + (n + 1) * w.cluster_floats() - w.weight_sums() * all;
      for (int part = first; part < last; ++part)
        for (std::size_t i = 0; i < slots + entries; ++i)
          to[i] += from[part * all + (i < slots ? i : i - slots + blocks)];
    }
  };
  for (int row = 0; row < w.weight_rows(); ++row) write(w.received + row * w.tokens->weights_stride, row, row + 1);
  if (w.sums != nullptr) write(w.sums, 0, w.weight_sums());
}

// Reduces the splits in a fixed order; then sums the weights of each slot, if they were kept.
HWY_NOINLINE void reduce(const HeadStep& w) {
  if (w.merged != nullptr) return reduce_clusters(w);
  const AttentionShape& shape = w.step->shape;
  const int value_dim = shape.value_dim, group = w.group(), first_row = w.first_query * group;
  const int end_row = first_row + w.queries * group;
  const std::size_t part = row_floats(shape), split_floats = w.rows() * part;
  for (int r = first_row; w.splits > 1 && r < end_row; ++r) {
    const float* const first = w.partial + r * part;
    float max = kNothing, sum = 0;
    for (int s = 0; s < w.splits; ++s) max = std::max(max, first[s * split_floats + value_dim]);
    float* const out = w.step->out.at(w.tokens->first + r / group, w.kv_head * group + r % group);
    std::fill_n(out, value_dim, 0.0f);
    for (int s = 0; max != kNothing && s < w.splits; ++s) {
      const float* const from = first + s * split_floats;
      const float factor = pow2(from[value_dim] - max);
      sum += factor * from[value_dim + 1];
      for (int d = 0; d < value_dim; ++d) out[d] += factor * from[d];
    }
    const float denominator = softmax_denominator(w, r, max, sum), inverse = denominator > 0 ? 1 / denominator : 0;
    for (int d = 0; d < value_dim; ++d) out[d] *= inverse;
    if (w.log_sum != nullptr) w.log_sum[r] = denominator > 0 ? max + std::log2(denominator) : -kNothing;
  }
  if (w.kept_queries == 0) return;

  const int blocks = w.blocks(), kept_rows = w.kept_now() * group;
  const float* const log_sum = w.log_sum + (end_row - kept_rows);
  const WeightReduction as = w.tokens->weight_reduction;
  const Vec share = hn::Set(df, as == WeightReduction::kMeanOverGroup ? 1 / static_cast<float>(group) : 1);
  for (int r = 0; r < kept_rows; ++r) {  // each block's max score becomes its factor
    float* const factor = w.kept_max + static_cast<std::ptrdiff_t>(r) * blocks;
    for (int n = 0; n < blocks; n += kLanes) {
      const Vec max = load_first(factor + n, std::min(kLanes, blocks - n));
      const Vec scaled = hn::Mul(share, pow2(hn::Sub(max, hn::Set(df, log_sum[r]))));
      hn::StoreN(scaled, df, factor + n, static_cast<std::size_t>(std::min(kLanes, blocks - n)));
    }
  }
  const int first_late = kept_rows - w.late_queries() * group;
  for (int n = 0; n < blocks; ++n) {
    const int slots = std::min(kBlock, w.slots().slots - n * kBlock);  // a multiple of 16
    Vec early[kVectors], received[kVectors];
    const auto add_rows = [&](int first, int last, Vec* sum) HWY_ATTR {
      for (int v = 0; v < kVectors; ++v) sum[v] = hn::Zero(df);
      for (int v = 0; as != WeightReduction::kMeanOverGroup && v < kVectors; ++v) {
        Vec group_max = hn::Zero(df);
        for (int r = first; r < last; ++r) {
          const float* const kept = w.kept + (static_cast<std::size_t>(n) * kept_rows + r) * kBlock + v * kLanes;
          const Vec p = hn::Mul(hn::Set(df, w.kept_max[r * blocks + n]), hn::LoadU(df, kept));
          add_weight(as, (r + 1) % group == 0, p, group_max, sum[v]);
        }
      }
      for (int r = first; as == WeightReduction::kMeanOverGroup && r < last; ++r) {
        const float* const kept = w.kept + (static_cast<std::size_t>(n) * kept_rows + r) * kBlock;
        const Vec factor = hn::Set(df, w.kept_max[r * blocks + n]);
        for (int v = 0; v < kVectors; ++v) sum[v] = hn::MulAdd(factor, hn::LoadU(df, kept + v * kLanes), sum[v]);
      }
    };
    float* to = w.received + n * kBlock + (w.tokens->drafts ? w.first_query : 0) * w.tokens->weights_stride;
    if (w.sums != nullptr) add_rows(0, first_late, early);
    for (int row = 0, r = first_late; row < w.weight_rows(); ++row, to += w.tokens->weights_stride) {
      const int each = w.row_queries(row) * group;
      add_rows(r, r + each, received);
      r += each;
      for (int v = 0; v * kLanes < slots; ++v) hn::StoreU(received[v], df, to + v * kLanes);
      for (int v = 0; w.sums != nullptr && v < kVectors; ++v) early[v] = hn::Add(early[v], received[v]);
    }
    for (int v = 0; w.sums != nullptr && v * kLanes < slots; ++v)
      hn::StoreU(early[v], df, w.sums + n * kBlock + v * kLanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
