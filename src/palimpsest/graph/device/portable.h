// The portable path: attention as stock ggml operators, on any ggml device, with the same results as the fast path.
//
//   k ── rotate ── set_rows ──> K          rows of this step's slots; K and V stay on the device
//   v ──────────── set_rows ──> V
//   q ── rotate ──┐                                              (kOnRead: K is rotated here, by rank)
//   K ───────── mul_mat ── (two queries: blend) ── soft_max_ext(mask) ──┐
//   V ───────────────────────────────────────────────────────────── mul_mat ──> out
//
// The query heads of a group are rows of one product with their KV head's keys: K is never repeated. Empty slots are
// masked. ggml_flash_attn_ext is not used: it returns no weights, some devices refuse a mask per head, and on the CPU
// it accumulates f16 values in f16.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "palimpsest/graph/attention_path.h"
#include "palimpsest/graph/backends.h"
#include "palimpsest/graph/device/portable_inputs.h"
#include "palimpsest/graph/device/portable_rotate.h"
#include "palimpsest/graph/device/portable_storage.h"
#include "palimpsest/graph/sequence_step.h"

namespace palimpsest {

class PortablePath final : public AttentionPath {
 public:
  // `backends` must outlive it.
  PortablePath(const Hyperparameters& hyper, const Backends& backends);

  CacheOptions cache_options(const Hyperparameters& hyper) const override;
  std::uint64_t begin(const Step& step) override;
  std::size_t nodes_per_layer() const override;
  ggml_tensor* build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) override;
  ggml_tensor* convolve(DecoderGraph& graph, int layer, ggml_tensor* x, ggml_tensor* weight) override;
  ggml_tensor* scan(DecoderGraph& graph, int layer, const ScanInputs& in) override;
  void prepare(DecoderGraph& graph, const Step& step) override;
  void finish(DecoderGraph& graph, const Step& step) override;

 private:
  struct Table {    // of all layers with equal slots, windows, RoPE tables (and devices, by rank), or of one layer
    int layer = 0;  // the first of these layers
    TableInputs in;
    int span = 0;
    RopeRows query, sink_query, keys;  // by rank
  };
  struct Sequence {
    std::vector<Table> tables;
    std::vector<int> table_of;     // [layers]
    bool queries_at_rank = false;  // queries are rotated by rank, else by position
    // Of each layer with heads, f32 [1, span, kv_heads] for each row of weights: sums over the group; empty: not
    // requested.
    std::vector<std::pair<int, std::vector<ggml_tensor*>>> weights;

    const Table& table(int layer) const { return tables[table_of[layer]]; }
  };
  struct NewKv {  // a layer's new keys and values, un-rotated
    int layer;
    ggml_tensor *keys, *values;
  };
  struct State {  // a part of a sequence's state, before and after the step
    int sequence;
    std::size_t offset;
    ggml_tensor *before, *after;
  };
  struct Inputs final : PathInputs {    // of one graph
    std::vector<RopeRows> by_position;  // [ropes] of all tokens, by position
    std::vector<Sequence> sequences;
    std::vector<NewKv> new_kv;  // empty: not requested
    std::vector<State> states;
    ggml_tensor* first_state = nullptr;                       // i32 [1]: 0, which ggml's scan asks for
    std::vector<std::pair<int, ggml_tensor*>> sink_logits;    // by layer, f32 [query_heads]
    std::vector<std::pair<int, ggml_tensor*>> query_factors;  // by layer, f32 [head_dim]
  };
  struct Rows {  // of a layer's new tokens; rotated_*: by position
    ggml_tensor *q, *k, *v, *rotated_q, *rotated_k, *sink_logits, *query_factor;
  };

  PortableStorage& storage_of(const SequenceStep& sequence) const;
  void make_inputs(DecoderGraph& graph) const;
  void make_tables(ggml_context* context, const TableNeeds& needs, Sequence& sequence) const;
  Table make_table(ggml_context* context, const TableNeeds& needs, int layer) const;
  ggml_tensor* attend(DecoderGraph& graph, int layer, int sequence, const Rows& rows) const;
  void collect_weights(DecoderGraph& graph, Sequence& inputs, int layer, ggml_tensor* weights,
                       const SequenceStep& step) const;
  ggml_tensor* exact(ggml_context* context, int layer, ggml_tensor* stored) const;
  RankTable& ranks_of(int layer) { return ranks_[rank_table_of(layer)]; }
  const RankTable& ranks_of(int layer) const { return ranks_[rank_table_of(layer)]; }
  std::size_t rank_table_of(int layer) const;

  int layers_;
  const Backends& backends_;
  std::vector<RankTable> ranks_;  // [ropes][backends]
  TableWriter writer_;
  std::vector<float> cos_, sin_, read_weights_, new_keys_, new_values_;
  const Step* step_ = nullptr;  // of the last begin()
  using Shape = std::vector<std::uint64_t>;
  std::deque<std::pair<Shape, std::uint64_t>> shapes_;  // the last few shapes and their numbers
  std::uint64_t last_shape_ = 0;
};

}  // namespace palimpsest
