// A random cache and a random step over it, for tests of attention kernels. Pages, slot tables and rotations are made
// without the Cache class. Empty slots hold NaN, so that a kernel that reads one fails the test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <vector>

#include "palimpsest/attention/attention.h"
#include "palimpsest/cache/merged.h"

namespace palimpsest::testing {

struct RandomCacheOptions {
  CacheType type = CacheType::kF32;
  std::optional<CacheType> value_type = {};  // if it differs from the keys'
  int kv_heads = 2, group = 2, head_dim = 64, value_dim = 64;
  int page_size = 16;
  int sequences = 1;
  int old_tokens = 100;      // of the longest sequence; the others have fewer
  int new_tokens = 1;        // of the longest sequence; the others have fewer, at least one
  double empty_slots = 0;    // fraction of slots without a token
  double null_pages = 0;     // fraction of unmapped pages (more slots, not fewer tokens)
  bool own_slots = false;    // each head has its own slot table, with different slots
  bool own_budgets = false;  // and different numbers of tokens (and windows, if there is one)
  Rotation rotation = Rotation::kNever;
  RopeKind rope = RopeKind::kNone;
  int rope_dims = 0;
  std::int32_t window = INT32_MAX;
  Position base = 1'000'000;  // of the slot tables
  int sinks = 0;              // with a window, or with two_queries
  bool two_queries = false;
  std::int32_t local = INT32_MAX;
  float soft_cap = 0;
  bool alibi = false, rank_distance = false;
  bool bias = false;                           // per slot: small, large and -infinity; NaN in empty slots
  bool sink_logits = false;                    // small, large and -infinity
  bool query_factor = false, chunked = false;  // chunked: `local` begins at its multiples
  bool rotated_half = false;                   // kOnRead: pages hold rotated halves
  bool rank_tiles = false;                     // made for the step (all heads share a slot table)
  bool rank_keys = false;                      // kOnWrite: new tokens are rotated at their ranks
  int merged = 0;                              // merged tokens per head, in random slots; some heads have fewer
  bool own_positions = false;                  // of merged tokens
  bool weights = false;
  bool sums = false;  // besides weights
  int weights_queries = INT32_MAX;
  std::vector<int> weights_rows = {};  // SequenceTokens::weights_rows, of every sequence
  WeightReduction weight_reduction = WeightReduction::kMeanOverGroup;
  bool drafts = false;  // the new tokens are drafts: weights of each query
  unsigned seed = 1;

  friend std::ostream& operator<<(std::ostream& out, const RandomCacheOptions& o);
};

class RandomCache {
 public:
  explicit RandomCache(const RandomCacheOptions& options);
  RandomCache(const RandomCache&) = delete;
  RandomCache& operator=(const RandomCache&) = delete;

  const LayerStep& step() const { return step_; }
  void clear_results();  // out and weights become NaN
  const std::vector<float>& out() const { return out_; }
  const std::vector<std::vector<float>>& weights() const { return weights_; }  // [sequence * kv_heads], then the sums
  // Bytes of all pages; restoring them undoes an insert.
  const std::vector<std::byte>& bytes() const { return bytes_; }
  void restore(const std::vector<std::byte>& bytes);

 private:
  struct Head {
    std::vector<PageId> page;
    std::vector<std::int32_t> relative, rank;
    std::vector<int> inserted;
    std::vector<float> bias;
    MergedTokens merged{0};
    MergedView merged_view;
    SlotsView slots;
  };
  struct Sequence {
    std::vector<Head> head;
    std::vector<HeadPages> pages;
    std::vector<std::int32_t> relative;
    std::vector<float> key_row, rank_row, distance_row;
    std::vector<std::int32_t> head_window;
  };

  RandomCacheOptions options_;
  std::vector<std::byte> bytes_;
  std::vector<Sequence> sequence_;
  std::vector<LayerView> layer_;
  std::vector<SequenceTokens> tokens_;
  std::vector<float> q_, k_, v_, out_, alibi_, sink_logits_, query_factor_;
  std::vector<std::vector<float>> rank_tiles_;
  std::vector<const float*> rank_tiles_of_;
  std::vector<std::vector<float>> weights_;
  std::vector<std::size_t> weights_row_;  // [sequence * kv_heads] weights of a query
  std::vector<float*> weights_of_;        // as weights_
  LayerStep step_;
};

}  // namespace palimpsest::testing
