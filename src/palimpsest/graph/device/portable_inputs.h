// The inputs of the portable graph in each step: slots of the new tokens, masks, ranks.
#pragma once

#include <ggml-cpp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "palimpsest/attention/attention.h"
#include "palimpsest/graph/device/portable_rotate.h"
#include "palimpsest/graph/device/step_block.h"

namespace palimpsest {

// The inputs from one slot table of each of B sequences for all layers, or from the KV heads of one layer. H: 1 if the
// heads share a table, else KV heads. `tokens`: of each sequence. nullptr: not needed.
struct TableInputs {
  struct SeenTable {  // the table that a row of the mask was written from, as far as the row depends on it
    std::uint64_t epoch = 0;
    std::size_t changes = 0;  // of this epoch
  };
  std::vector<SeenTable> seen;  // [H * B], of masks in a block

  ggml_tensor* key_rows = nullptr;    // i32 [tokens, H, B]: slots
  ggml_tensor* value_rows = nullptr;  // i32 [value_dim * tokens, H, B]: elements of V, if it is stored transposed
  ggml_tensor* mask = nullptr;  // f16 [span, tokens, 1, H or 1, * B]: 0 or -inf. has_mask_per_query_head(): f32 [span,
                                // tokens, group, KV heads], the bias or -inf; B = 1. An input, or of these:
  ggml_tensor* distances = nullptr;    // f32 [span, 1, 1, H]: of slots from the first query; hidden ones are far ahead
  ggml_tensor* offsets = nullptr;      // f32 [1, tokens]: of queries from the first one, and a half
  ggml_tensor* sinks = nullptr;        // f32 [sink_span, 1, H]: 1 for slots that the second query (of the sinks)
                                       // scores; B = 1
  ggml_tensor* others = nullptr;       // 1 - sinks
  ggml_tensor* query_ranks = nullptr;  // i32 [H * tokens * B]: ranks of the new tokens, if rotated by rank
  ggml_tensor* sink_ranks = nullptr;   // i32 [H * tokens]: of the second query
  ggml_tensor* key_ranks = nullptr;    // i32 [span * H * B]: of stored keys; 0 for empty slots
  ggml_tensor* sink_slots = nullptr;   // i32 [sinks]: 0, 1, ...: the slots of sinks whose keys are rotated
  RopeRows sink_rotation;              // of these keys, beyond their own: f32 [head_dim, 1, H, B]
  StepBlock* block = nullptr;          // these tensors are in it; nullptr: they are inputs of the graph
};

struct TableNeeds {
  int tokens = 0, sequences = 1;            // tokens of each
  int span = 0, sink_span = 0;              // sink_span: all sinks are in these first slots
  bool shared = true;                       // all heads share a table
  bool two_query = false, rotated = false;  // rotated: the model has rotary positions
  int rotated_sinks = 0;
  bool query_ranks = false, key_ranks = false;
  bool value_rows = false;
  bool distances = false;  // the graph makes the mask
  bool one_mask = false;   // one mask for all heads, whose tables differ otherwise
  StepBlock* block = nullptr;

  int heads(const AttentionShape& shape) const { return shared ? 1 : shape.kv_heads; }
  int masks(const AttentionShape& shape) const { return one_mask ? 1 : heads(shape); }
};
// ALiBi differs between the query heads of a group; ggml's softmax with sink logits takes no group.
inline bool has_mask_per_query_head(const AttentionShape& shape, bool shared) {
  return shape.alibi != nullptr || (shape.sink_logits != nullptr && !shared);
}
// Whether what the queries of a chunk see depends on the order of tokens alone, in layers without a window.
bool sees_by_order(const SequenceTokens& tokens);
// Throws Error if a sequence's step has biases of slots: these graphs have no inputs for them.
void require_supported(const LayerStep& step, int sequence);

// An input of the graph, in `block` if there is one.
ggml_tensor* new_input(ggml_context* context, StepBlock* block, ggml_type type,
                       const std::array<std::int64_t, 4>& shape);
void set_input(StepBlock* block, ggml_tensor* input, std::span<const std::byte> contents, std::size_t offset = 0);

// RopeRows of one rotation, and its values, from a RopeFrequencies row.
RopeRows new_rotation(ggml_context* context, StepBlock* block, const AttentionShape& shape);
void set_rotation(StepBlock* block, const RopeRows& rope, const AttentionShape& shape, const float* cos_sin,
                  std::vector<float>& inverse);

TableInputs new_table_inputs(ggml_context* context, const AttentionShape& shape, const TableNeeds& needs);

// Fills TableInputs; reuses its memory.
class TableWriter {
 public:
  // Fills the part of one of B sequences, the step's `sequence`, in the inputs of one layer. `capacity`: slots of the
  // tensors written to; `draft_slot`: of the first draft that takes none of its table (SlotsView::patches), others
  // follow.
  void write(TableInputs& inputs, const LayerStep& step, int sequence, int index, int capacity, int draft_slot);

 private:
  void write_rows(const TableInputs& inputs, const HeadPages* head, const SequenceTokens& tokens, int capacity);
  void write_distances(const TableInputs& inputs, const LayerStep& step, int sequence);
  void write_mask(TableInputs& inputs, const LayerStep& step, int sequence);
  void write_biases(const TableInputs& inputs, const LayerStep& step, int sequence);
  template <typename T>
  void set(const TableInputs& inputs, ggml_tensor* t, const std::vector<T>& part) const;
  int slot_of(const SlotsView& slots, int token) const;
  template <typename Visible>  // visible(slot, relative position, rank) for each token that the query sees
  void for_each_visible(const LayerStep& step, int sequence, int head, int query, Visible visible);
  void write_sinks(const TableInputs& inputs, const HeadPages* head, const SequenceTokens& tokens);
  void write_ranks(const TableInputs& inputs, const LayerStep& step, int sequence);
  void write_sink_rotations(const TableInputs& inputs, const LayerStep& step, int sequence);

  int index_ = 0, draft_slot_ = 0;
  std::vector<int> holder_;  // [slots] a draft that a query sees in a slot, kNobody, or kItself: as the table has it
  std::vector<std::int32_t> rows_;
  std::vector<ggml_fp16_t> mask_;
  std::vector<float> sinks_, others_, biases_, distances_, rotation_, inverse_, cos_, sin_, all_cos_, all_sin_;
  std::vector<std::int32_t> ranks_;
};

}  // namespace palimpsest
