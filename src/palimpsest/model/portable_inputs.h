// What the host tells the portable graph in every step: where the new tokens go, who sees what, who meets which query.
#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <vector>

#include "palimpsest/attention/attention.h"

namespace palimpsest {

// The inputs that one slot table gives, or a layer's tables of all KV heads. H: 1 if the heads share a table.
struct TableInputs {
  ggml_tensor* key_rows = nullptr;    // i64 [tokens, H]: slots
  ggml_tensor* value_rows = nullptr;  // i64 [value_dim * tokens, H]: single elements of V, which lies transposed
  ggml_tensor* mask = nullptr;        // f16 [span, tokens, 1, H]: 0 or -inf
  ggml_tensor* sinks = nullptr;       // f32 [span, 1, H]: 1 where the second query is meant; nullptr: one query
  ggml_tensor* others = nullptr;      // 1 - sinks
};

TableInputs new_table_inputs(ggml_context* context, const AttentionShape& shape, int tokens, int span, int heads,
                             bool two_query);

// Fills them; its memory is used again and again.
class TableWriter {
 public:
  // `head`: as many heads as the inputs have. `capacity`: slots of the tensors that are written to.
  void write(const TableInputs& inputs, const HeadPages* head, const StepTokens& tokens, int capacity);
  void write_ranks(ggml_tensor* ranks, const SlotsView& slots);  // i32 [span]; 0 where no token is

 private:
  std::vector<std::int64_t> rows_;
  std::vector<ggml_fp16_t> mask_;
  std::vector<float> sinks_, others_;
  std::vector<std::int32_t> ranks_;
};

}  // namespace palimpsest
