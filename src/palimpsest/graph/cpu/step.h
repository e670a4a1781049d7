// A step, laid out for the attention of every layer: which rows belong to which sequence, where their caches are, how
// queries and keys rotate, what is visible.
#pragma once

#include <span>
#include <vector>

#include "palimpsest/attention/attention.h"
#include "palimpsest/attention/rope.h"
#include "palimpsest/graph/sequence_step.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

class Step {
 public:
  // `recompute` off: a device whose kernels rotate all kept keys in each step anyway takes kRecompute for kOnRead.
  explicit Step(const Hyperparameters& hyper, bool recompute = true);

  // Reads the sequences' rules and tables. The memory is kept from step to step.
  void prepare(std::span<const SequenceStep> sequences);

  int tokens() const { return tokens_; }
  int sequences() const { return static_cast<int>(input_.size()); }
  std::span<const SequenceStep> input() const { return input_; }
  std::span<const TokenId> ids() const { return ids_; }
  std::span<const std::int32_t> learned_positions() const {
    return learned_positions_;
  }                                                             // of the tokens, if the model learned positions
  std::span<const std::int32_t> rows() const { return rows_; }  // tokens whose logits are wanted

  // The model's rotary tables; one of each layer, and the first layer with heads of each (-1: none has it).
  int ropes() const { return hyper_.ropes(); }
  int rope_of(int layer) const { return hyper_.rope_of(layer); }
  int first_layer(int rope) const;

  // Hands a layer's new keys and values to the receivers that hear of births: of every `threads`-th head, so that all
  // threads together tell of all.
  bool report_kv() const;
  void report_new_kv(int layer, const Heads<const float>& k, const Heads<const float>& v, int thread,
                     int threads) const;
  void report_new_queries(int layer, const Heads<const float>& q, int thread, int threads) const;  // of those who asked

  // All of one layer's operator but q, k, v and out.
  const AttentionStep& attention(int layer) const { return layers_[static_cast<std::size_t>(layer)]; }

 private:
  struct Buffers {  // of one sequence
    std::vector<std::int32_t> when;
    std::vector<float> rows[2];  // of each rotary table
  };
  struct Rope {  // one of the model's rotary tables
    explicit Rope(const RopeOptions& options) : frequencies(options) {}
    void grow_ranks(int count);
    void grow_distances(int count);

    RopeFrequencies frequencies;
    std::vector<float> rank_rows;      // grows, never recomputed: row r belongs to rank r for ever
    std::vector<float> distance_rows;  // likewise, of distances between a merged token and its slot's
    std::vector<StepTokens> tokens;    // [sequences]: alike but for the rows of cosines and sines
  };
  void prepare_sequence(const SequenceStep& s, Buffers& b, StepTokens& out);
  void prepare_rows(const SequenceStep& s, Buffers& b, std::size_t sequence);
  static void tell(void* step, int layer, int sequence, int kv_head);

  const Hyperparameters& hyper_;
  bool recompute_;
  std::vector<Rope> ropes_;
  std::span<const SequenceStep> input_;
  int tokens_ = 0;
  std::vector<TokenId> ids_;
  std::vector<std::int32_t> rows_, learned_positions_;
  std::vector<Buffers> buffers_;
  std::vector<LayerView> views_;       // [layers][sequences]
  std::vector<float*> weights_;        // [layers][sequences][KV heads], if any sequence wants them
  std::vector<float*> sums_;           // likewise
  std::vector<AttentionStep> layers_;  // [layers]
};

}  // namespace palimpsest
