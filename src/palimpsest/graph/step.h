// A step's arguments for the attention of every layer: the rows and the cache of each sequence, rotations, visibility.
#pragma once

#include <span>
#include <vector>

#include "palimpsest/attention/attention.h"
#include "palimpsest/core/rope.h"
#include "palimpsest/graph/sequence_step.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

class Step {
 public:
  // `materialize` false: kMaterialized is replaced by kOnRead, for devices that rotate all keys in each step anyway.
  explicit Step(const Hyperparameters& hyper, bool materialize = true);

  // Reads the sequences' rules and tables. The memory is reused.
  void prepare(std::span<const SequenceStep> sequences);

  int tokens() const { return tokens_; }
  int sequences() const { return static_cast<int>(input_.size()); }
  std::span<const SequenceStep> input() const { return input_; }
  std::span<const TokenId> ids() const { return ids_; }
  std::span<const std::int32_t> learned_positions() const {
    return learned_positions_;
  }  // of the tokens, if the model has learned positions
  std::span<const float> query_temperatures() const {
    return query_temperatures_;
  }  // of the tokens, if the model has them: Hyperparameters::query_temperature_slope
  std::span<const std::int32_t> rows() const { return rows_; }  // tokens whose logits are requested

  // The number of the model's RoPE tables, that of a layer, and the first layer with heads that uses one (-1: none).
  int ropes() const { return hyper_.ropes(); }
  int rope_of(int layer) const { return hyper_.rope_of(layer); }
  double rope_magnitude(int layer) const {
    return ropes_[static_cast<std::size_t>(rope_of(layer))].frequencies.magnitude();
  }
  int first_layer(int rope) const;

  // Reports a layer's new keys and values to the receivers that requested them. Thread `thread` of `threads` reports
  // every `threads`-th head.
  bool report_kv() const;
  void report_new_kv(int layer, const Heads<const float>& k, const Heads<const float>& v, int thread,
                     int threads) const;
  void report_new_queries(int layer, const Heads<const float>& q, int thread, int threads) const;  // likewise

  // The arguments of one layer's operator, except q, k, v and out.
  const LayerStep& attention(int layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  const LayerState& state(int layer) const { return hyper_.states[at(layer)]; }  // of a recurrent layer

 private:
  struct Buffers {  // of one sequence
    std::vector<std::int32_t> relative;
    std::vector<float> rows[2];  // of each RoPE table
  };
  struct Rope {  // one of the model's RoPE tables
    explicit Rope(const RopeOptions& options) : frequencies(options) {}
    void grow_ranks(int count);
    void grow_distances(int count);

    RopeFrequencies frequencies;
    std::vector<float> rank_rows;        // row r is of rank r; grows, never recomputed
    std::vector<float> distance_rows;    // likewise, of distances between a merged token and its slot's
    std::vector<SequenceTokens> tokens;  // [sequences]: equal for all tables but for the rows of cosines and sines
  };
  void prepare_sequence(const SequenceStep& s, Buffers& b, SequenceTokens& out);
  void prepare_rows(const SequenceStep& s, Buffers& b, std::size_t sequence);
  static void report_weights(void* step, int layer, int sequence, int kv_head);
  static std::span<const SlotPatch> find_patches(void* step, const LayerStep& a, int sequence, int kv_head, int query);

  const Hyperparameters& hyper_;
  bool materialize_;
  std::vector<Rope> ropes_;
  std::span<const SequenceStep> input_;
  int tokens_ = 0;
  std::vector<TokenId> ids_;
  std::vector<std::int32_t> rows_, learned_positions_;
  std::vector<float> query_temperatures_;
  std::vector<Buffers> buffers_;
  std::vector<LayerView> views_;   // [layers][sequences]
  std::vector<float*> weights_;    // [layers][sequences][KV heads], if any sequence requests them
  std::vector<float*> sums_;       // likewise
  std::vector<LayerStep> layers_;  // [layers]
};

}  // namespace palimpsest
