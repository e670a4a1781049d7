// The graph of one layer's attention; see the diagram in portable.h.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "palimpsest/graph/device/portable.h"
#include "palimpsest/graph/graph.h"
#include "palimpsest/graph/step.h"
#include "palimpsest/model/backend.h"

namespace palimpsest {

namespace {

// [dim, heads, all tokens] of a batch.
ggml_tensor* tokens_of(ggml_context* c, ggml_tensor* x, const SequenceTokens& first, int sequences) {
  return ggml_view_3d(c, x, x->ne[0], x->ne[1], std::int64_t{first.count} * sequences, x->nb[1], x->nb[2],
                      static_cast<std::size_t>(first.first) * x->nb[2]);
}

// [dim, heads, all tokens] -> [dim, tokens of each sequence, heads, sequences], contiguous. One of both numbers is 1.
ggml_tensor* by_lane(ggml_context* c, ggml_tensor* x, int sequences) {
  if (x->ne[2] == sequences) return ggml_reshape_4d(c, x, x->ne[0], 1, x->ne[1], sequences);
  return ggml_cont(c, ggml_permute(c, x, 0, 2, 1, 3));
}

// The lanes of `sequences` seats from `seat` on: [row, rows, heads, sequences], rows of `stored` from the first on.
ggml_tensor* seats_of(ggml_context* c, ggml_tensor* stored, const StorageSeat& seat, int layer, std::int64_t heads,
                      int sequences, std::int64_t row, std::int64_t rows) {
  const std::size_t lane = stored->nb[2];
  return ggml_view_4d(c, stored, row, rows, heads, sequences, stored->nb[1], lane, at(heads) * lane,
                      at(seat.lane(layer)) * lane);
}

// The same of a tensor that is a result of set_rows on such a view.
ggml_tensor* first_rows(ggml_context* c, ggml_tensor* seats, std::int64_t row, std::int64_t rows) {
  return ggml_view_4d(c, seats, row, rows, seats->ne[2], seats->ne[3], seats->nb[1], seats->nb[2], seats->nb[3], 0);
}

// Rotates x [dim, heads, tokens], each KV head's part by its own row: rope [dim, 1, KV heads or 1, tokens].
ggml_tensor* rotated_by_head(ggml_context* c, ggml_tensor* x, const RopeRows& rope, int kv_heads, int dims) {
  ggml_tensor* grouped = ggml_reshape_4d(c, x, x->ne[0], x->ne[1] / kv_heads, kv_heads, x->ne[2]);
  return ggml_reshape_3d(c, rotated(c, grouped, rope, dims), x->ne[0], x->ne[1], x->ne[2]);
}

// The type that flash attention gets keys in that are rotated, in f32, in each step.
ggml_type type_rotated_on_read(ggml_type stored) {
  return ggml_is_quantized(stored) ? GGML_TYPE_F32 : stored;
}

// q [head_dim, query heads, all tokens], keys [head_dim, span, heads, sequences], values [value_dim, span, heads,
// sequences] -> [value_dim * query heads, all tokens]. With a mask of each lane, these are in dimension 3, as CUDA
// demands.
ggml_tensor* flash_attention(ggml_context* c, const AttentionShape& shape, ggml_tensor* q, ggml_tensor* keys,
                             ggml_tensor* values, ggml_tensor* mask, ggml_tensor* sink_logits) {
  const std::int64_t heads = shape.kv_heads, group = shape.group(), sequences = keys->ne[3], all = q->ne[2],
                     count = all / sequences, lanes = heads * sequences;
  const float cap = shape.soft_cap > 0 ? shape.soft_cap : 0;
  const bool per_lane = mask->ne[3] == lanes && lanes > sequences;
  ggml_tensor* rows = nullptr;  // of q
  if (count == 1)
    rows = per_lane ? ggml_reshape_4d(c, q, q->ne[0], 1, group, lanes)
                    : ggml_reshape_4d(c, q, q->ne[0], 1, group * heads, sequences);
  else
    rows = per_lane ? ggml_view_4d(c, q, q->ne[0], count, group, heads, q->nb[2], q->nb[1], group * q->nb[1], 0)
                    : ggml_permute(c, q, 0, 2, 1, 3);
  const auto lanes_apart = [&](ggml_tensor* x) {
    return per_lane ? ggml_view_4d(c, x, x->ne[0], x->ne[1], 1, lanes, x->nb[1], x->nb[2], x->nb[2], 0) : x;
  };
  ggml_tensor* out = ggml_flash_attn_ext(c, rows, lanes_apart(keys), lanes_apart(values), mask, shape.scale, 0.0F, cap);
  ggml_flash_attn_ext_add_sinks(out, sink_logits);
  ggml_prec_set_acc(out, GGML_PREC_F32);
  if (per_lane && count > 1) out = ggml_cont(c, ggml_permute(c, out, 0, 1, 3, 2));
  return ggml_reshape_2d(c, out, shape.value_dim * group * heads, all);
}

}  // namespace

ggml_tensor* PortablePath::build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
  if (graph.path_inputs == nullptr) make_inputs(graph);
  ggml_context* c = graph.context.get();
  auto& inputs = static_cast<Inputs&>(*graph.path_inputs);
  const LayerStep& a = step_->attention(layer);
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
  const bool rotates = a.tokens[0].rotation != Rotation::kNever, pairs = a.shape.rope == RopeKind::kPairs;
  const RopeRows& by_position = inputs.by_position[rank_table_of(layer)];
  if (rotates && pairs) {
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
  if (by_position) {
    rows.rotated_q = rotated(c, q, by_position, dims);
    rows.rotated_k = rotated(c, k, by_position, dims);
  }
  ggml_tensor* out = nullptr;
  for (BatchInputs& batch : inputs.batches) {
    ggml_tensor* part = attend(graph, layer, batch, rows);
    out = out == nullptr ? part : ggml_concat(c, out, part, 1);
  }
  return out;
}

// Whether a product of f32 rows with stored elements rounds the rows. The CPU rounds them to f16 or bf16 (relative
// error 2e-4, 2e-3 of a score), and an RPC server may be a CPU; other devices do so for bf16, but not for f16.
bool PortablePath::is_rounded(int layer, ggml_type stored) const {
  ggml_backend_dev_t const device = ggml_backend_get_device(backends_.of_layer(layer));
  return stored == GGML_TYPE_BF16 || (stored == GGML_TYPE_F16 && (is_cpu(device) || is_rpc(device)));
}

// stored [n, m, heads, sequences] x rows [n, count, heads, sequences] -> [m, count, heads, sequences], sums in f32.
// Before a product of many rows, stored elements are widened where rows would be rounded, and always those of blocks,
// for which all devices round rows to 8 bits. A few rows are rounded to f16 (widening would move six times the bytes),
// but not to bf16: they are split into what they are rounded to and the rest, two rows of one product.
ggml_tensor* PortablePath::product(ggml_context* c, int layer, ggml_tensor* stored, ggml_tensor* rows) const {
  constexpr std::int64_t kFew = 32;
  const std::int64_t count = rows->ne[1];
  const bool split = stored->type == GGML_TYPE_BF16 && count <= kFew;
  if (split) {
    ggml_tensor* high = ggml_cast(c, ggml_cast(c, rows, stored->type), GGML_TYPE_F32);
    rows = ggml_concat(c, high, ggml_sub(c, rows, high), 1);
  } else if (ggml_is_quantized(stored->type) || (is_rounded(layer, stored->type) && count > kFew)) {
    stored = ggml_cast(c, stored, GGML_TYPE_F32);
  }
  ggml_tensor* product = ggml_mul_mat(c, stored, rows);
  ggml_prec_set_acc(product, GGML_PREC_F32);
  if (!split) return product;
  const auto half = [&](std::int64_t first) {
    return ggml_view_4d(c, product, product->ne[0], count, product->ne[2], product->ne[3], product->nb[1],
                        product->nb[2], product->nb[3], static_cast<std::size_t>(first) * product->nb[1]);
  };
  return ggml_add(c, half(0), half(count));
}

// Whether a device has flash attention for a layer. An RPC server would have to be asked itself: its client says that
// it has every operator. ggml's CPU kernel adds f16 values up in f16, over thousands of tokens, and reads keys once per
// query head: products sum in f32 and read them once per group. PALIMPSEST_DEVICE_ATTENTION: "flash", on the CPU for
// these types too, or "products".
bool PortablePath::has_flash(const LayerStep& a, const CacheOptions& cache, bool shared, Rotation rotation) const {
  const AttentionShape& shape = a.shape;
  if (has_mask_per_query_head(shape, shared)) return false;
  const char* const wish = std::getenv("PALIMPSEST_DEVICE_ATTENTION");
  if (wish != nullptr && std::string_view(wish) == "products") return false;
  const LayerGeometry& g = cache.geometry.layer(a.kv_layer);
  const ggml_type stored = ggml_type_of(g.key_type), value = ggml_type_of(g.value_type);
  const bool on_read = rotation == Rotation::kOnRead || rotation == Rotation::kMaterialized;
  const ggml_type key = on_read ? type_rotated_on_read(stored) : stored;
  ggml_backend_t const backend = backends_.of_layer(a.layer);
  const bool cpu = is_cpu(ggml_backend_get_device(backend)),
             forced = wish != nullptr && std::string_view(wish) == "flash";
  if (is_rpc(ggml_backend_get_device(backend))) return false;
  if (cpu && !forced && (is_rounded(a.layer, key) || is_rounded(a.layer, value))) return false;

  const ggml_context_ptr context(ggml_init({32 * ggml_tensor_overhead(), nullptr, true}));
  ggml_context* c = context.get();
  for (const int count : {1, 64}) {
    ggml_tensor* q = ggml_new_tensor_3d(c, GGML_TYPE_F32, shape.head_dim, shape.query_heads, count);
    ggml_tensor* keys = ggml_new_tensor_3d(c, key, shape.head_dim, kStorageSlots, shape.kv_heads);
    ggml_tensor* values = ggml_new_tensor_3d(c, value, shape.value_dim, kStorageSlots, shape.kv_heads);
    ggml_tensor* mask = ggml_new_tensor_4d(c, GGML_TYPE_F16, kStorageSlots, count, 1, shared ? 1 : shape.kv_heads);
    ggml_tensor* sinks =
        shape.sink_logits == nullptr ? nullptr : ggml_new_tensor_1d(c, GGML_TYPE_F32, shape.query_heads);
    ggml_tensor* out = flash_attention(c, shape, q, keys, values, mask, sinks);
    while (out->op != GGML_OP_FLASH_ATTN_EXT) out = out->src[0];
    if (!ggml_backend_supports_op(backend, out)) return false;
  }
  return true;
}

// Decided once for a sequence, for all layers and steps: values are stored as the operator reads them.
bool PortablePath::takes_flash(const CacheOptions& cache, const AttentionRule& rule) const {
  if (rule.two_query && rotated_sinks(cache, rule) == 0) return false;  // the softmax is over scores of two queries
  const bool shared = cache.shared && rule.head_window.empty();
  for (int layer = 0; layer < layers_; ++layer)
    if (const LayerStep& a = model_.attention(layer);
        a.shape.kv_heads > 0 && !has_flash(a, cache, shared, rule.rotation))
      return false;
  return true;
}

// v [value_dim, heads, all tokens] -> all stored values: [value_dim, span, heads, sequences] if they are in rows, else
// [span, value_dim, heads, sequences].
ggml_tensor* PortablePath::insert_values(ggml_context* c, const PortableStorage& storage, const LayerStep& a,
                                         const BatchInputs& in, ggml_tensor* v) const {
  const std::int64_t heads = a.shape.kv_heads, width = a.shape.value_dim;
  const int count = in.batch.count;
  const Table& table = in.table(a.layer);
  ggml_tensor* stored = storage.seat()->values(a.kv_layer);
  const auto seats = [&](std::int64_t row, std::int64_t rows) {
    return seats_of(c, stored, storage.seat(), a.kv_layer, heads, count, row, rows);
  };
  ggml_tensor* rows = by_lane(c, v, count);
  if (storage.values_in_rows())
    return first_rows(c, ggml_set_rows(c, seats(width, stored->ne[1]), rows, table.in.key_rows), width, in.batch.span);
  ggml_tensor* elements = ggml_reshape_4d(c, rows, 1, rows->ne[0] * rows->ne[1], heads, count);
  ggml_tensor* all = ggml_view_4d(c, stored, 1, stored->ne[0] * width, heads, count, stored->nb[0], stored->nb[2],
                                  at(heads) * stored->nb[2], at(storage.seat().lane(a.kv_layer)) * stored->nb[2]);
  ggml_tensor* values = ggml_set_rows(c, all, elements, table.in.value_rows);
  return ggml_view_4d(c, values, in.batch.span, width, heads, count, stored->nb[1], stored->nb[2],
                      at(heads) * stored->nb[2], 0);
}

// keys: all rows of the batch's lanes.
ggml_tensor* PortablePath::rotate_sinks(ggml_context* c, const LayerStep& a, const BatchInputs& in,
                                        const StorageSeat& seat, ggml_tensor* keys) const {
  const Table& table = in.table(a.layer);
  ggml_tensor* saved = seat->sinks(a.kv_layer);
  ggml_tensor* sinks =
      seats_of(c, saved, seat, a.kv_layer, a.shape.kv_heads, in.batch.count, saved->ne[0], saved->ne[1]);
  return ggml_set_rows(c, keys, rotated(c, sinks, table.in.sink_rotation, a.shape.rope_dims), table.in.sink_slots);
}

ggml_tensor* PortablePath::attend(DecoderGraph& graph, int layer, BatchInputs& in, const Rows& rows) const {
  ggml_context* c = graph.context.get();
  const LayerStep& a = step_->attention(layer);
  const AttentionShape& shape = a.shape;
  const int sequences = in.batch.count;
  const SequenceTokens& tokens = a.tokens[in.batch.first];
  const SequenceStep& step = step_->input()[in.batch.first];
  const Table& table = in.table(layer);
  const PortableStorage& storage = storage_of(step);
  const std::int64_t count = tokens.count, group = shape.group(), heads = shape.kv_heads, span = in.batch.span;
  const bool weights_wanted = (step.weights != nullptr || step.fading) && a.kv_layer == layer;
  const auto use = [&](ggml_tensor* weights) {
    if (step.fading)
      choose_victims(graph, in, layer, weights, step);
    else
      collect_weights(graph, in, layer, weights, step);
  };

  const auto own = [&](ggml_tensor* x) { return tokens_of(c, x, tokens, sequences); };
  ggml_tensor* q = own(in.queries_at_rank ? rows.q : rows.rotated_q);
  ggml_tensor* k = own(in.queries_at_rank ? rows.k : rows.rotated_k);
  const auto rotated_heads = [&](ggml_tensor* x, const RopeRows& rope) {
    return rotated_by_head(c, x, rope, shape.kv_heads, shape.rope_dims);
  };
  ggml_tensor* sink_q = table.sink_query.cos == nullptr ? nullptr : rotated_heads(own(rows.q), table.sink_query);
  if (in.queries_at_rank) {
    q = rotated_heads(q, table.query);
    if (tokens.rotation == Rotation::kOnWrite) k = rotated_heads(k, table.query);
  }
  if (rows.query_factor != nullptr) {
    q = ggml_mul(c, q, rows.query_factor);
    if (sink_q != nullptr) sink_q = ggml_mul(c, sink_q, rows.query_factor);
  }

  ggml_tensor* stored = storage.seat()->keys(a.kv_layer);
  ggml_tensor* keys = seats_of(c, stored, storage.seat(), a.kv_layer, heads, sequences, shape.head_dim, stored->ne[1]);
  if (table.in.sink_rotation && a.kv_layer == layer) keys = rotate_sinks(c, a, in, storage.seat(), keys);
  keys = ggml_set_rows(c, keys, by_lane(c, k, sequences), table.in.key_rows);
  keys = first_rows(c, keys, shape.head_dim, span);
  ggml_tensor* values = insert_values(c, storage, a, in, own(rows.v));
  if (table.keys.cos != nullptr) {
    keys = keys->type == GGML_TYPE_F32 ? ggml_cont(c, keys) : ggml_cast(c, keys, GGML_TYPE_F32);
    keys = rotated(c, keys, table.keys, shape.rope_dims);
  }

  if (in.flash) {
    if (weights_wanted) {
      const std::int64_t late = std::min<std::int64_t>(step.request.weights_queries, count);
      const auto skipped = static_cast<std::size_t>(count - late);
      ggml_tensor *mask = table.in.mask, *last = q;
      if (late < count) {
        mask = ggml_cont(c, ggml_view_4d(c, mask, span, late, mask->ne[2], mask->ne[3], mask->nb[1], mask->nb[2],
                                         mask->nb[3], skipped * mask->nb[1]));
        last = ggml_view_3d(c, q, q->ne[0], q->ne[1], late, q->nb[1], q->nb[2], skipped * q->nb[2]);
      }
      use(softmax(c, shape, scores(c, layer, keys, last), mask, rows.sink_logits));
    }
    if (const ggml_type type = type_rotated_on_read(stored->type); table.keys.cos != nullptr && keys->type != type)
      keys = ggml_cast(c, keys, type);
    return flash_attention(c, shape, q, keys, values, table.in.mask, rows.sink_logits);
  }

  ggml_tensor* sums = scores(c, layer, keys, q);
  if (sink_q != nullptr) {
    const std::int64_t some = table.in.sinks->ne[0];
    const auto part = [&](ggml_tensor* x, std::int64_t width, std::int64_t rows_of_x, std::int64_t first) {
      return ggml_view_3d(c, x, width, rows_of_x, heads, x->nb[1], x->nb[2], static_cast<std::size_t>(first));
    };
    ggml_tensor* of_sinks = scores(c, layer, part(keys, keys->ne[0], some, 0), sink_q);
    ggml_tensor* first = ggml_mul(c, part(sums, some, sums->ne[1], 0), table.in.others);
    first = ggml_add(c, first, ggml_mul(c, of_sinks, table.in.sinks));
    const auto bytes = some * std::int64_t{sizeof(float)};
    sums = some == span ? first : ggml_concat(c, first, part(sums, span - some, sums->ne[1], bytes), 0);
  }
  ggml_tensor* weights = softmax(c, shape, sums, table.in.mask, rows.sink_logits);
  if (weights_wanted) use(weights);
  if (storage.values_in_rows()) {
    if (values->type != GGML_TYPE_F32) values = ggml_cast(c, values, GGML_TYPE_F32);
    values = ggml_cont(c, ggml_transpose(c, values));
  }
  ggml_tensor* mixed = product(c, layer, values, ggml_reshape_4d(c, weights, span, count * group, heads, sequences));
  if (count > 1) {
    mixed = ggml_reshape_4d(c, mixed, shape.value_dim, count, group, heads);
    mixed = ggml_cont(c, ggml_permute(c, mixed, 0, 3, 1, 2));
  }
  return ggml_reshape_2d(c, mixed, shape.value_dim * group * heads, count * sequences);
}

// keys [head_dim, span, heads, sequences] x q [head_dim, query heads, all tokens] -> [span, tokens * group, heads,
// sequences]: the rows of a KV head are [its query heads] x [tokens].
ggml_tensor* PortablePath::scores(ggml_context* c, int layer, ggml_tensor* keys, ggml_tensor* q) const {
  const std::int64_t heads = keys->ne[2], sequences = keys->ne[3], group = q->ne[1] / heads,
                     count = q->ne[2] / sequences;
  ggml_tensor* rows = q;
  if (count > 1) {
    rows = ggml_view_4d(c, q, q->ne[0], group, heads, count, q->nb[1], group * q->nb[1], q->nb[2], 0);
    rows = ggml_cont(c, ggml_permute(c, rows, 0, 2, 3, 1));
  }
  return product(c, layer, keys, ggml_reshape_4d(c, rows, q->ne[0], count * group, heads, sequences));
}

// [span, tokens * group, heads, sequences] -> [span, tokens, group, lanes]. A mask of each sequence is for all its
// heads.
ggml_tensor* PortablePath::softmax(ggml_context* c, const AttentionShape& shape, ggml_tensor* scores, ggml_tensor* mask,
                                   ggml_tensor* sink_logits) const {
  const std::int64_t span = mask->ne[0], count = mask->ne[1], group = shape.group(), heads = shape.kv_heads,
                     sequences = scores->ne[3], lanes = heads * sequences;
  float scale = shape.scale;
  if (shape.soft_cap > 0) {
    scores = ggml_scale(c, ggml_tanh(c, ggml_scale(c, scores, scale / shape.soft_cap)), shape.soft_cap);
    scale = 1;
  }
  const bool per_lane = mask->ne[3] == lanes && sink_logits == nullptr;
  if (sink_logits != nullptr && mask->type == GGML_TYPE_F32)  // of each query head
    mask = ggml_reshape_3d(c, mask, span, count, group * heads);
  scores = per_lane ? ggml_reshape_4d(c, scores, span, count, group, lanes)
                    : ggml_reshape_4d(c, scores, span, count, group * heads, sequences);
  ggml_tensor* weights = ggml_soft_max_ext(c, scores, mask, scale, 0.0F);
  if (sink_logits != nullptr) ggml_soft_max_add_sinks(weights, sink_logits);
  return ggml_reshape_4d(c, weights, span, count, group, lanes);
}

// weights [span, tokens, group, heads] -> sums over some queries and the group, [1, span, heads]. Of one query: by
// additions in a row, which CUDA does at once; so their views are in the graph before.
ggml_tensor* PortablePath::sum_of_weights(const DecoderGraph& graph, ggml_tensor* weights, std::int64_t first,
                                          std::int64_t count) const {
  ggml_context* c = graph.context.get();
  const std::int64_t span = weights->ne[0], group = weights->ne[2], heads = weights->ne[3];
  if (count == 1) {
    std::vector<ggml_tensor*> of_head;
    for (std::int64_t g = 0; g < group; ++g) {
      of_head.push_back(
          ggml_view_2d(c, weights, span, heads, weights->nb[3], at(g) * weights->nb[2] + at(first) * weights->nb[1]));
      ggml_build_forward_expand(graph.graph, of_head.back());
    }
    ggml_tensor* sum = of_head[0];
    for (std::int64_t g = 1; g < group; ++g) sum = ggml_add(c, sum, of_head[at(g)]);
    return ggml_reshape_3d(c, group == 1 ? ggml_cont(c, sum) : sum, 1, span, heads);
  }
  ggml_tensor* some = ggml_view_4d(c, weights, span, count, group, heads, weights->nb[1], weights->nb[2],
                                   weights->nb[3], static_cast<std::size_t>(first) * weights->nb[1]);
  ggml_tensor* columns = ggml_cont(c, ggml_permute(c, some, 2, 0, 1, 3));
  return ggml_sum_rows(c, ggml_reshape_3d(c, columns, count * group, span, heads));
}

// weights [span, tokens, group, heads] -> sums over the queries of each row and the group.
void PortablePath::collect_weights(DecoderGraph& graph, BatchInputs& inputs, int layer, ggml_tensor* weights,
                                   const SequenceStep& step) const {
  ggml_context* c = graph.context.get();
  const std::int64_t span = weights->ne[0], tokens = weights->ne[1], heads = weights->ne[3];
  const int late = static_cast<int>(std::min<std::int64_t>(step.request.weights_queries, tokens));
  ggml_tensor* all = inputs.weights[backends_.index_of(layer)];
  std::size_t to = 0;  // the floats of the device's layers before
  if (!inputs.weights_of.empty() && backends_.index_of(inputs.weights_of.back().first) == backends_.index_of(layer)) {
    const auto& [last, begin] = inputs.weights_of.back();
    const std::size_t rows = std::max<std::size_t>(1, step.request.weights_rows.size());
    to = begin + rows * at(inputs.batch.span) * at(step_->attention(last).shape.kv_heads * inputs.batch.count);
  }
  inputs.weights_of.emplace_back(layer, to);
  std::int64_t first = tokens - late;
  for (const std::int64_t count : step.request.weights_rows.empty() ? std::span(&late, 1) : step.request.weights_rows) {
    ggml_tensor* sums = sum_of_weights(graph, weights, first, count);
    ggml_tensor* place = ggml_view_1d(c, all, span * heads, to * sizeof(float));
    ggml_build_forward_expand(graph.graph, ggml_cpy(c, ggml_reshape_1d(c, sums, span * heads), place));
    to += static_cast<std::size_t>(span * heads);
    first += count;
  }
}

}  // namespace palimpsest
