// The graph of one layer's attention; see the diagram in portable.h.
#include <algorithm>

#include "palimpsest/graph/device/portable.h"
#include "palimpsest/graph/graph.h"
#include "palimpsest/graph/step.h"
#include "palimpsest/model/backend.h"

namespace palimpsest {

namespace {

// [dim, heads, tokens] of one sequence.
ggml_tensor* tokens_of(ggml_context* c, ggml_tensor* x, const StepTokens& tokens) {
  return ggml_view_3d(c, x, x->ne[0], x->ne[1], tokens.count, x->nb[1], x->nb[2],
                      static_cast<std::size_t>(tokens.first) * x->nb[2]);
}

// [dim, heads, tokens] -> [dim, tokens, heads], contiguous.
ggml_tensor* by_head(ggml_context* c, ggml_tensor* x) {
  if (x->ne[2] == 1) return ggml_reshape_3d(c, x, x->ne[0], 1, x->ne[1]);
  return ggml_cont(c, ggml_permute(c, x, 0, 2, 1, 3));
}

// Rotates x [dim, heads, tokens], each KV head's part by its own row: rope [dim, 1, KV heads or 1, tokens].
ggml_tensor* rotated_by_head(ggml_context* c, ggml_tensor* x, const RopeRows& rope, int kv_heads, int dims) {
  ggml_tensor* grouped = ggml_reshape_4d(c, x, x->ne[0], x->ne[1] / kv_heads, kv_heads, x->ne[2]);
  return ggml_reshape_3d(c, rotated(c, grouped, rope, dims), x->ne[0], x->ne[1], x->ne[2]);
}

}  // namespace

ggml_tensor* PortablePath::build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
  if (graph.path_inputs == nullptr) make_inputs(graph);
  ggml_context* c = graph.context.get();
  auto& inputs = static_cast<Inputs&>(*graph.path_inputs);
  const AttentionStep& a = step_->attention(layer);
  const int dims = a.shape.rope_dims;
  for (ggml_tensor** x : {&q, &k, &v})
    if (!ggml_is_contiguous(*x)) *x = ggml_cont(c, *x);
  if (step_->report_kv() && a.kv_layer == layer) {
    for (ggml_tensor* x : {k, v}) {  // outputs: their memory is not reused before the graph has run
      ggml_set_output(x);
      if (x->view_src != nullptr) ggml_set_output(x->view_src);
    }
    inputs.new_kv.push_back({layer, k, v});
  }
  if (a.tokens[0].rotation != Rotation::kNever && a.shape.rope == RopeKind::kPairs) {
    q = neighbours_to_halves(c, q, dims);
    k = neighbours_to_halves(c, k, dims);
  }
  Rows rows = {.q = q, .k = k, .v = v, .rotated_q = q, .rotated_k = k, .sink_logits = nullptr, .query_factor = nullptr};
  if (a.shape.sink_logits != nullptr) {
    rows.sink_logits = ggml_new_tensor_1d(c, GGML_TYPE_F32, a.shape.query_heads);
    ggml_set_input(rows.sink_logits);
    inputs.sink_logits.emplace_back(layer, rows.sink_logits);
  }
  if (a.shape.query_factor != nullptr) {
    rows.query_factor = ggml_new_tensor_1d(c, GGML_TYPE_F32, a.shape.head_dim);
    ggml_set_input(rows.query_factor);
    inputs.query_factors.emplace_back(layer, rows.query_factor);
  }
  if (const RopeRows& by_position = inputs.by_position[step_->rope_of(layer)]; by_position.cos != nullptr) {
    rows.rotated_q = rotated(c, q, by_position, dims);
    rows.rotated_k = rotated(c, k, by_position, dims);
  }
  ggml_tensor* out = nullptr;
  for (int i = 0; i < a.sequences; ++i) {
    ggml_tensor* part = attend(graph, layer, i, rows);
    out = out == nullptr ? part : ggml_concat(c, out, part, 1);
  }
  return out;
}

// Converts stored elements so that their product with f32 has f32 precision. The CPU would round the other operand to
// f16 or bf16 (relative error 2e-4, 2e-3 of a score), and an RPC server may be a CPU; other devices do so for bf16, but
// not for f16.
ggml_tensor* PortablePath::exact(ggml_context* c, int layer, ggml_tensor* stored) const {
  ggml_backend_dev_t const device = ggml_backend_get_device(backends_.of_layer(layer));
  const bool rounds =
      stored->type == GGML_TYPE_BF16 || (stored->type != GGML_TYPE_F32 && (is_cpu(device) || is_rpc(device)));
  return rounds ? ggml_cast(c, stored, GGML_TYPE_F32) : stored;
}

ggml_tensor* PortablePath::attend(DecoderGraph& graph, int layer, int sequence, const Rows& rows) const {
  ggml_context* c = graph.context.get();
  const AttentionStep& a = step_->attention(layer);
  const AttentionShape& shape = a.shape;
  const StepTokens& tokens = a.tokens[sequence];
  Sequence& in = static_cast<Inputs&>(*graph.path_inputs).sequences[sequence];
  const Table& table = in.table(layer);
  const PortableStorage& storage = storage_of(step_->input()[sequence]);
  const std::int64_t count = tokens.count, group = shape.group(), heads = shape.kv_heads, span = table.span;

  ggml_tensor* q = tokens_of(c, in.queries_at_rank ? rows.q : rows.rotated_q, tokens);
  ggml_tensor* k = tokens_of(c, in.queries_at_rank ? rows.k : rows.rotated_k, tokens);
  ggml_tensor* v = tokens_of(c, rows.v, tokens);
  const auto rotated_heads = [&](ggml_tensor* x, const RopeRows& rope) {
    return rotated_by_head(c, x, rope, shape.kv_heads, shape.rope_dims);
  };
  ggml_tensor* sink_q =
      table.sink_query.cos == nullptr ? nullptr : rotated_heads(tokens_of(c, rows.q, tokens), table.sink_query);
  if (in.queries_at_rank) {
    q = rotated_heads(q, table.query);
    if (tokens.rotation == Rotation::kOnWrite) k = rotated_heads(k, table.query);
  }
  if (rows.query_factor != nullptr) {
    q = ggml_mul(c, q, rows.query_factor);
    if (sink_q != nullptr) sink_q = ggml_mul(c, sink_q, rows.query_factor);
  }

  // Insert.
  ggml_tensor* keys = ggml_set_rows(c, storage.keys(a.kv_layer), by_head(c, k), table.in.key_rows);
  ggml_tensor* stored = storage.values(a.kv_layer);
  ggml_tensor* elements = ggml_reshape_3d(c, by_head(c, v), 1, shape.value_dim * count, heads);
  ggml_tensor* values = ggml_set_rows(c, ggml_reshape_3d(c, stored, 1, stored->ne[0] * shape.value_dim, heads),
                                      elements, table.in.value_rows);
  keys = ggml_view_3d(c, keys, shape.head_dim, span, heads, storage.keys(a.kv_layer)->nb[1],
                      storage.keys(a.kv_layer)->nb[2], 0);
  values = ggml_view_3d(c, values, span, shape.value_dim, heads, stored->nb[1], stored->nb[2], 0);

  // Scores: the rows of a KV head are [tokens] x [its query heads].
  if (table.keys.cos != nullptr) {
    keys = keys->type == GGML_TYPE_F32 ? ggml_cont(c, keys) : ggml_cast(c, keys, GGML_TYPE_F32);
    keys = rotated(c, keys, table.keys, shape.rope_dims);
  } else {
    keys = exact(c, layer, keys);
  }
  const auto scores_of = [&](ggml_tensor* query) {
    ggml_tensor* by_group = ggml_view_4d(c, query, shape.head_dim, group, heads, count, query->nb[1],
                                         group * query->nb[1], query->nb[2], 0);
    ggml_tensor* product_rows = count == 1 ? query : ggml_cont(c, ggml_permute(c, by_group, 0, 2, 3, 1));
    ggml_tensor* product =
        ggml_mul_mat(c, keys, ggml_reshape_3d(c, product_rows, shape.head_dim, count * group, heads));
    ggml_prec_set_acc(product, GGML_PREC_F32);
    return product;
  };
  ggml_tensor* scores = scores_of(q);
  if (sink_q != nullptr)
    scores = ggml_add(c, ggml_mul(c, scores, table.in.others), ggml_mul(c, scores_of(sink_q), table.in.sinks));
  float scale = shape.scale;
  if (shape.soft_cap > 0) {
    scores = ggml_scale(c, ggml_tanh(c, ggml_scale(c, scores, scale / shape.soft_cap)), shape.soft_cap);
    scale = 1;
  }
  ggml_tensor* mask = table.in.mask;
  scores = ggml_reshape_4d(c, scores, span, count, group, heads);
  if (rows.sink_logits != nullptr) {
    scores = ggml_reshape_3d(c, scores, span, count, group * heads);
    mask = ggml_reshape_3d(c, mask, span, count, group * heads);
  }
  ggml_tensor* weights = ggml_soft_max_ext(c, scores, mask, scale, 0.0F);
  if (rows.sink_logits != nullptr) {
    ggml_soft_max_add_sinks(weights, rows.sink_logits);
    weights = ggml_reshape_4d(c, weights, span, count, group, heads);
  }
  if (step_->input()[sequence].weights != nullptr && a.kv_layer == layer)
    collect_weights(graph, in, layer, weights, step_->input()[sequence]);

  ggml_tensor* mixed =
      ggml_mul_mat(c, exact(c, layer, values), ggml_reshape_3d(c, weights, span, count * group, heads));
  ggml_prec_set_acc(mixed, GGML_PREC_F32);
  if (count > 1) {
    mixed = ggml_reshape_4d(c, mixed, shape.value_dim, count, group, heads);
    mixed = ggml_cont(c, ggml_permute(c, mixed, 0, 3, 1, 2));
  }
  return ggml_reshape_2d(c, mixed, shape.value_dim * group * heads, count);
}

// weights [span, tokens, group, heads] -> sums over the queries of each row and the group, outputs of the graph.
void PortablePath::collect_weights(DecoderGraph& graph, Sequence& inputs, int layer, ggml_tensor* weights,
                                   const SequenceStep& step) const {
  ggml_context* c = graph.context.get();
  const std::int64_t span = weights->ne[0], tokens = weights->ne[1], group = weights->ne[2], heads = weights->ne[3];
  const int late = static_cast<int>(std::min<std::int64_t>(step.weights_queries, tokens));
  auto& rows = inputs.weights.emplace_back(layer, std::vector<ggml_tensor*>()).second;
  std::int64_t first = tokens - late;
  for (const std::int64_t count : step.weights_rows.empty() ? std::span(&late, 1) : step.weights_rows) {
    ggml_tensor* some = ggml_view_4d(c, weights, span, count, group, heads, weights->nb[1], weights->nb[2],
                                     weights->nb[3], static_cast<std::size_t>(first) * weights->nb[1]);
    ggml_tensor* columns = ggml_cont(c, ggml_permute(c, some, 2, 0, 1, 3));
    ggml_tensor* sums = ggml_sum_rows(c, ggml_reshape_3d(c, columns, count * group, span, heads));
    ggml_set_output(sums);
    ggml_build_forward_expand(graph.graph, sums);
    rows.push_back(sums);
    first += count;
  }
}

}  // namespace palimpsest
