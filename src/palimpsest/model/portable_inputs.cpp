#include "palimpsest/model/portable_inputs.h"

#include <algorithm>
#include <cassert>

namespace palimpsest {

namespace {

constexpr ggml_fp16_t kVisible = 0, kHidden = 0xFC00;  // 0 and -infinity

ggml_tensor* input(ggml_context* context, ggml_type type, std::int64_t a, std::int64_t b = 1, std::int64_t c = 1,
                   std::int64_t d = 1) {
  ggml_tensor* t = ggml_new_tensor_4d(context, type, a, b, c, d);
  ggml_set_input(t);
  return t;
}

template <typename T>
void set(ggml_tensor* t, const std::vector<T>& values) {
  assert(values.size() * sizeof(T) == ggml_nbytes(t));
  ggml_backend_tensor_set(t, values.data(), 0, values.size() * sizeof(T));
}

}  // namespace

TableInputs new_table_inputs(ggml_context* context, const AttentionShape& shape, int tokens, int span, int heads,
                             bool two_query) {
  TableInputs in;
  in.key_rows = input(context, GGML_TYPE_I64, tokens, heads);
  in.value_rows = input(context, GGML_TYPE_I64, std::int64_t{shape.value_dim} * tokens, heads);
  in.mask = input(context, GGML_TYPE_F16, span, tokens, 1, heads);
  if (!two_query) return in;
  in.sinks = input(context, GGML_TYPE_F32, span, 1, heads);
  in.others = input(context, GGML_TYPE_F32, span, 1, heads);
  return in;
}

void TableWriter::write(const TableInputs& inputs, const HeadPages* head, const StepTokens& tokens, int capacity) {
  const std::int64_t heads = inputs.key_rows->ne[1], span = inputs.mask->ne[0];
  const std::int64_t values = inputs.value_rows->ne[0] / tokens.count;

  rows_.clear();
  for (std::int64_t h = 0; h < heads; ++h)
    rows_.insert(rows_.end(), head[h].slots->fresh, head[h].slots->fresh + tokens.count);
  set(inputs.key_rows, rows_);

  rows_.clear();
  for (std::int64_t h = 0; h < heads; ++h)
    for (int t = 0; t < tokens.count; ++t)
      for (std::int64_t d = 0; d < values; ++d) rows_.push_back(d * capacity + head[h].slots->fresh[t]);
  set(inputs.value_rows, rows_);

  mask_.assign(static_cast<std::size_t>(heads * tokens.count * span), kHidden);
  for (std::int64_t h = 0; h < heads; ++h)
    for (int t = 0; t < tokens.count; ++t) {
      const SlotsView& slots = *head[h].slots;
      const std::int64_t now = tokens.when[t], oldest = now - tokens.window;
      ggml_fp16_t* row = mask_.data() + (h * tokens.count + t) * span;
      for (int s = 0; s < slots.slots; ++s) {
        const std::int32_t when = slots.when[s];  // a dead slot's is later than any query
        if (when <= now && (when > oldest || when < tokens.sink_end)) row[s] = kVisible;
      }
    }
  set(inputs.mask, mask_);

  if (inputs.sinks == nullptr) return;
  sinks_.assign(static_cast<std::size_t>(heads * span), 0.0F);
  others_.assign(static_cast<std::size_t>(heads * span), 1.0F);
  for (std::int64_t h = 0; h < heads; ++h)
    for (int s = 0; s < head[h].slots->slots; ++s)
      if (head[h].slots->when[s] < tokens.sink_end) {
        sinks_[h * span + s] = 1.0F;
        others_[h * span + s] = 0.0F;
      }
  set(inputs.sinks, sinks_);
  set(inputs.others, others_);
}

void TableWriter::write_ranks(ggml_tensor* ranks, const SlotsView& slots) {
  ranks_.assign(static_cast<std::size_t>(ranks->ne[0]), 0);
  for (int s = 0; s < slots.slots; ++s) ranks_[s] = std::max(slots.rank[s], 0);
  set(ranks, ranks_);
}

}  // namespace palimpsest
