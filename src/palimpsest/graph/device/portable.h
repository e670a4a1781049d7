// The portable path: attention as stock ggml operators, on any ggml device, with the same results as the fast path.
//
//   k ── rotate ── set_rows ──> K          rows of this step's slots; K and V stay on the device
//   v ──────────── set_rows ──> V
//   q ── rotate ──┐                        K is rotated by rank here (kOnRead)
//   K ── V ── flash_attn_ext(mask) ──> out               if the device has it for the model's shape and the cache's
//   type
//
//   K ───────── mul_mat ── (two queries: blend) ── soft_max_ext(mask) ──┐                  else
//   V ───────────────────────────────────────────────────────────── mul_mat ──> out
//
// The query heads of a group are rows of one product with their KV head's keys: K is never repeated. Empty slots are
// masked; a chunk's mask is made on the device from distances. Flash attention returns no weights: where a policy asks
// for them, a product of the last queries and a soft_max_ext compute them beside it.
//
// Sinks with `cache` positions (two_query) are nearer to the query than their positions say. In a decode step their
// keys are rotated further by the difference (kRotated), and all else is as without; in a chunk, where it differs
// between the queries, a second query scores them (kScoredApart), by products.
//
// Sequences of a decode step whose seats in a slab are neighbours (portable_slab.h) are a batch: their lanes are
// neighbours too, and one operator serves all.
//
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "palimpsest/graph/attention_path.h"
#include "palimpsest/graph/backends.h"
#include "palimpsest/graph/device/portable_inputs.h"
#include "palimpsest/graph/device/portable_rotate.h"
#include "palimpsest/graph/device/portable_slab.h"
#include "palimpsest/graph/device/portable_storage.h"
#include "palimpsest/graph/sequence_step.h"
#include "palimpsest/graph/step.h"

namespace palimpsest {

class PortablePath final : public AttentionPath {
 public:
  // `backends` must outlive it.
  PortablePath(const Hyperparameters& hyper, const Backends& backends);

  CacheOptions cache_options(const Hyperparameters& hyper) const override;
  void attach_storage(Cache& cache, const AttentionRule& rule) const override;
  std::uint64_t begin(const Step& step) override;
  std::size_t nodes_per_layer() const override;
  ggml_tensor* build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) override;
  ggml_tensor* convolve(DecoderGraph& graph, int layer, ggml_tensor* x, ggml_tensor* weight) override;
  ggml_tensor* scan(DecoderGraph& graph, int layer, const ScanInputs& in) override;
  void prepare(DecoderGraph& graph, const Step& step) override;
  void finish(DecoderGraph& graph, const Step& step) override;

 private:
  struct Table {    // of all layers of a device with equal slots, windows and RoPE tables, or of one layer
    int layer = 0;  // the first of these layers
    TableInputs in;
    RopeRows query, sink_query, keys;  // by rank
  };
  struct SeenGuard {  // what a lane's guard was written from
    TableInputs::SeenTable table;
    RelativeRange victims;
  };
  struct NewTokens {  // too new to be victims: relative positions and slots, oldest first
    std::vector<std::pair<std::int32_t, int>> all;
    std::size_t first = 0;  // those before it have become victims
  };
  struct Scored {  // a layer whose slots have scores on the device
    int layer;
    std::size_t first;             // index of its first victim
    ggml_tensor *guard, *zero;     // f32 [span, lanes]: AttentionReceiver::guard(); [1, 1, lanes]
    std::vector<SeenGuard> seen;   // [lanes]
    std::vector<NewTokens> newer;  // [lanes]
  };
  enum class Sinks { kAlike, kRotated, kScoredApart };
  struct Batch {                  // sequences of the step whose seats are neighbours, in order
    int first = 0, count = 1;     // of the step's sequences
    int span = 0, sink_span = 0;  // slots that are read; the first ones, which hold all sinks, if scored apart
    Sinks sinks = Sinks::kAlike;
  };
  struct BatchInputs {
    Batch batch;
    std::vector<Table> tables;
    std::vector<int> table_of;     // [layers]
    bool queries_at_rank = false;  // queries are rotated by rank, else by position
    bool flash = false;
    // If requested, [backends]: of each of its layers with heads, for each row of weights, f32 [span, lanes]: sums
    // over the group. nullptr: none.
    std::vector<ggml_tensor*> weights;
    std::vector<std::pair<int, std::size_t>> weights_of;  // layer, index of its first float
    // With SequenceStep::fading: [backends] of each of its layers with heads, i32 [lanes]: slots. nullptr: none.
    std::vector<ggml_tensor*> victims;
    std::vector<Scored> scored;  // by layer

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
    std::vector<StepBlock> blocks;      // [backends]
    bool tables_in_blocks = false;      // of decode steps: masks of chunks are large, and new in each step
    std::vector<RopeRows> by_position;  // [ropes][backends] of all tokens, by position
    StepBlock* block_of(std::size_t backend) { return tables_in_blocks ? &blocks[backend] : nullptr; }
    std::vector<BatchInputs> batches;
    std::vector<NewKv> new_kv;  // empty: not requested
    std::vector<State> states;
    ggml_tensor* first_state = nullptr;                       // i32 [1]: 0, which ggml's scan asks for
    std::vector<std::pair<int, ggml_tensor*>> sink_logits;    // by layer, f32 [query_heads]
    std::vector<std::pair<int, ggml_tensor*>> query_factors;  // by layer, f32 [head_dim]
  };
  struct Rows {  // of a layer's new tokens; rotated_*: by position
    ggml_tensor *q, *k, *v, *rotated_q, *rotated_k, *sink_logits, *query_factor;
  };

  static PortableStorage& storage_of(const SequenceStep& sequence);
  void reserve(const Step& step, int sequence);
  void find_batches(const Step& step);
  bool joins(const Step& step, const Batch& batch, int sequence) const;
  Sinks sinks_of(const Step& step, int sequence) const;
  bool takes_flash(const CacheOptions& cache, const AttentionRule& rule) const;
  ggml_tensor* rotate_sinks(ggml_context* context, const LayerStep& a, const BatchInputs& in, const StorageSeat& seat,
                            ggml_tensor* keys) const;
  bool has_flash(const LayerStep& a, const CacheOptions& cache, bool shared, Rotation rotation) const;
  void make_inputs(DecoderGraph& graph) const;
  void make_tables(ggml_context* context, TableNeeds needs, Inputs& inputs, BatchInputs& batch) const;
  Table make_table(ggml_context* context, TableNeeds needs, int layer) const;
  ggml_tensor* attend(DecoderGraph& graph, int layer, BatchInputs& inputs, const Rows& rows) const;
  ggml_tensor* insert_values(ggml_context* context, const PortableStorage& storage, const LayerStep& a,
                             const BatchInputs& in, ggml_tensor* v) const;
  ggml_tensor* scores(ggml_context* context, int layer, ggml_tensor* keys, ggml_tensor* q) const;
  ggml_tensor* softmax(ggml_context* context, const AttentionShape& shape, ggml_tensor* scores, ggml_tensor* mask,
                       ggml_tensor* sink_logits) const;
  ggml_tensor* product(ggml_context* context, int layer, ggml_tensor* stored, ggml_tensor* rows) const;
  bool is_rounded(int layer, ggml_type stored) const;
  void make_weights(Inputs& inputs, BatchInputs& batch, const SequenceStep& step) const;
  void collect_weights(DecoderGraph& graph, BatchInputs& inputs, int layer, ggml_tensor* weights,
                       const SequenceStep& step) const;
  ggml_tensor* sum_of_weights(const DecoderGraph& graph, ggml_tensor* weights, std::int64_t first,
                              std::int64_t count) const;
  void make_victims(Inputs& inputs, BatchInputs& batch) const;
  void choose_victims(DecoderGraph& graph, const BatchInputs& inputs, int layer, ggml_tensor* weights,
                      const SequenceStep& step) const;
  void write_guards(Inputs& inputs, BatchInputs& batch, const Step& step);
  void write_guard(StepBlock& block, Scored& scored, std::size_t lane, const SlotsView& slots,
                   AttentionReceiver& receiver, int head);
  void read_victims(const BatchInputs& inputs, const Step& step);
  void read_weights(const BatchInputs& inputs, const Step& step);
  RankTable& ranks_of(int layer) { return ranks_[rank_table_of(layer)]; }
  const RankTable& ranks_of(int layer) const { return ranks_[rank_table_of(layer)]; }
  std::size_t rank_table_of(int layer) const;

  int layers_;
  const Backends& backends_;
  const Step model_;  // the shapes of its layers
  mutable StoragePool pool_;
  std::vector<RankTable> ranks_;  // [ropes][backends]
  std::vector<Batch> batches_;    // of the last begin()
  TableWriter writer_;
  std::vector<float> cos_, sin_, inverse_, read_weights_, new_keys_, new_values_, guard_;
  std::vector<std::int32_t> victims_;
  const Step* step_ = nullptr;  // of the last begin()
  using Shape = std::vector<std::uint64_t>;
  std::deque<std::pair<Shape, std::uint64_t>> shapes_;  // the last few shapes and their numbers
  std::uint64_t last_shape_ = 0;
};

}  // namespace palimpsest
