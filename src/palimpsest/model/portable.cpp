#include "palimpsest/model/portable.h"

#include <algorithm>
#include <cassert>

#include "palimpsest/model/backend.h"
#include "palimpsest/model/graph.h"

namespace palimpsest {

namespace {

constexpr int kSpan = 256;  // slots that a graph attends to: a multiple, so that few graphs are built
constexpr std::size_t kShapesKnown = 16;

int span_of(const Cache& cache) {
  int slots = 1;
  for (int t = 0; t < cache.tables(); ++t) slots = std::max(slots, cache.table(t).slots());
  return (slots + kSpan - 1) / kSpan * kSpan;
}

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

}  // namespace

struct PortablePath::Sequence {
  std::vector<TableInputs> tables;  // one, or one a layer
  int span = 0;
  ggml_tensor* ranks = nullptr;  // i32 [span]; late rotation only
  Turn late;
  std::vector<ggml_tensor*> weights;  // [layers] f32 [1, span, kv_heads]: sums over the group; empty: not wanted

  const TableInputs& table(int layer) const { return tables[tables.size() == 1 ? 0 : layer]; }
};

struct PortablePath::Inputs final : PathInputs {
  Turn query, sink_query, key;
  std::vector<Sequence> sequences;
};

PortablePath::PortablePath(const Hyperparameters&, ggml_backend_t backend)
    : backend_(backend), cpu_(is_cpu(ggml_backend_get_device(backend))), ranks_(backend) {}

CacheOptions PortablePath::cache_options(const Hyperparameters& hyper) const {
  CacheOptions options;
  options.layers = hyper.layers;
  options.kv_heads = hyper.kv_heads;
  options.head_dim = hyper.head_dim;
  options.value_dim = hyper.value_dim;
  options.pages = false;
  return options;
}

PortableStorage& PortablePath::storage_of(const SequenceStep& sequence) const {
  if (sequence.cache->storage() == nullptr)
    sequence.cache->attach(std::make_unique<PortableStorage>(sequence.cache->options(), backend_));
  return static_cast<PortableStorage&>(*sequence.cache->storage());
}

std::uint64_t PortablePath::begin(const Step& step) {
  step_ = &step;
  const AttentionStep& a = step.attention(0);
  Shape shape = {static_cast<std::uint64_t>(a.shape.rotation)};
  for (int i = 0; i < step.sequences(); ++i) {
    const SequenceStep& sequence = step.input()[i];
    const StepTokens& tokens = a.tokens[i];
    assert(tokens.head_window == nullptr);
    assert(sequence.cache->options().shared || (a.shape.rotation != Rotation::kLate && !tokens.two_query));
    PortableStorage& storage = storage_of(sequence);
    storage.carry_out();
    const int span = span_of(*sequence.cache);
    storage.reserve(span);
    if (a.shape.rotation == Rotation::kLate) ranks_.reserve(a.shape, tokens.rank_row, sequence.cache->live());
    shape.insert(shape.end(),
                 {storage.generation(), static_cast<std::uint64_t>(span), static_cast<std::uint64_t>(tokens.count),
                  tokens.two_query, sequence.weights != nullptr, static_cast<std::uint64_t>(a.weights_queries)});
  }
  shape.push_back(ranks_.generation());

  const auto known = std::find_if(shapes_.begin(), shapes_.end(), [&](const auto& s) { return s.first == shape; });
  if (known != shapes_.end()) return known->second;
  if (shapes_.size() == kShapesKnown) shapes_.pop_front();
  shapes_.emplace_back(std::move(shape), ++last_shape_);
  return last_shape_;
}

std::size_t PortablePath::nodes_per_layer() const {
  return 48 + 64 * static_cast<std::size_t>(step_->sequences());
}

void PortablePath::make_inputs(DecoderGraph& graph) const {
  ggml_context* c = graph.context.get();
  const AttentionStep& a = step_->attention(0);
  auto inputs = std::make_unique<Inputs>();
  if (a.shape.rotation != Rotation::kNever) inputs->query = new_turn(c, a.shape, graph.tokens);
  if (a.shape.rotation == Rotation::kAtWrite) inputs->key = new_turn(c, a.shape, graph.tokens);
  for (int i = 0; i < step_->sequences(); ++i) {
    const Cache& cache = *step_->input()[i].cache;
    const bool two_query = a.tokens[i].two_query;
    if (two_query && inputs->sink_query.cos == nullptr) inputs->sink_query = new_turn(c, a.shape, graph.tokens);
    Sequence s;
    s.span = span_of(cache);
    const bool shared = cache.options().shared;
    for (int t = 0; t < (shared ? 1 : cache.options().layers); ++t)
      s.tables.push_back(
          new_table_inputs(c, a.shape, a.tokens[i].count, s.span, shared ? 1 : a.shape.kv_heads, two_query));
    if (a.shape.rotation == Rotation::kLate) {
      s.ranks = ggml_new_tensor_1d(c, GGML_TYPE_I32, s.span);
      ggml_set_input(s.ranks);
      s.late = {ggml_get_rows(c, ranks_.rows().cos, s.ranks), ggml_get_rows(c, ranks_.rows().sin, s.ranks)};
    }
    inputs->sequences.push_back(std::move(s));
  }
  graph.path_inputs = std::move(inputs);
}

ggml_tensor* PortablePath::build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
  if (layer == 0) make_inputs(graph);
  ggml_context* c = graph.context.get();
  const auto& inputs = static_cast<const Inputs&>(*graph.path_inputs);
  const AttentionStep& a = step_->attention(layer);
  const int dims = a.shape.rope_dims;
  if (a.shape.rotation != Rotation::kNever && a.shape.rope == RopeKind::kPairs) {
    q = neighbours_to_halves(c, q, dims);
    k = neighbours_to_halves(c, k, dims);
  }
  ggml_tensor* sink_q = inputs.sink_query.cos != nullptr ? rotated(c, q, inputs.sink_query, dims) : nullptr;
  if (a.shape.rotation != Rotation::kNever) q = rotated(c, q, inputs.query, dims);
  if (a.shape.rotation == Rotation::kAtWrite) k = rotated(c, k, inputs.key, dims);

  ggml_tensor* out = nullptr;
  for (int i = 0; i < a.sequences; ++i) {
    ggml_tensor* part = attend(graph, layer, i, q, sink_q, k, v);
    out = out == nullptr ? part : ggml_concat(c, out, part, 1);
  }
  return out;
}

// Stored elements as an operand whose product with f32 is exact to f32. The CPU would round the other side to f16 or
// bf16 (2e-4, 2e-3 of a score's size), other devices do so with bf16; f16 they multiply as it is.
ggml_tensor* PortablePath::exact(ggml_context* c, ggml_tensor* stored) const {
  const bool rounds = stored->type == GGML_TYPE_BF16 || (cpu_ && stored->type != GGML_TYPE_F32);
  return rounds ? ggml_cast(c, stored, GGML_TYPE_F32) : stored;
}

ggml_tensor* PortablePath::attend(DecoderGraph& graph, int layer, int sequence, ggml_tensor* q, ggml_tensor* sink_q,
                                  ggml_tensor* k, ggml_tensor* v) const {
  ggml_context* c = graph.context.get();
  const AttentionStep& a = step_->attention(layer);
  const AttentionShape& shape = a.shape;
  const StepTokens& tokens = a.tokens[sequence];
  Sequence& in = static_cast<Inputs&>(*graph.path_inputs).sequences[sequence];
  const TableInputs& table = in.table(layer);
  const PortableStorage& storage = storage_of(step_->input()[sequence]);
  const std::int64_t count = tokens.count, group = shape.group(), heads = shape.kv_heads, span = in.span;

  // Insert.
  ggml_tensor* keys = ggml_set_rows(c, storage.keys(layer), by_head(c, tokens_of(c, k, tokens)), table.key_rows);
  ggml_tensor* stored = storage.values(layer);
  ggml_tensor* elements = ggml_reshape_3d(c, by_head(c, tokens_of(c, v, tokens)), 1, shape.value_dim * count, heads);
  ggml_tensor* values = ggml_set_rows(c, ggml_reshape_3d(c, stored, 1, stored->ne[0] * shape.value_dim, heads),
                                      elements, table.value_rows);
  keys = ggml_view_3d(c, keys, shape.head_dim, span, heads, storage.keys(layer)->nb[1], storage.keys(layer)->nb[2], 0);
  values = ggml_view_3d(c, values, span, shape.value_dim, heads, stored->nb[1], stored->nb[2], 0);

  // Scores: the rows of a KV head are [tokens] x [its query heads].
  if (shape.rotation == Rotation::kLate) {
    keys = keys->type == GGML_TYPE_F32 ? ggml_cont(c, keys) : ggml_cast(c, keys, GGML_TYPE_F32);
    keys = rotated(c, keys, in.late, shape.rope_dims);
  } else {
    keys = exact(c, keys);
  }
  const auto scores_of = [&](ggml_tensor* query) {
    ggml_tensor* mine = tokens_of(c, query, tokens);
    ggml_tensor* rows =
        ggml_view_4d(c, mine, shape.head_dim, group, heads, count, mine->nb[1], group * mine->nb[1], mine->nb[2], 0);
    rows = count == 1 ? mine : ggml_cont(c, ggml_permute(c, rows, 0, 2, 3, 1));
    ggml_tensor* product = ggml_mul_mat(c, keys, ggml_reshape_3d(c, rows, shape.head_dim, count * group, heads));
    ggml_prec_set_acc(product, GGML_PREC_F32);
    return product;
  };
  ggml_tensor* scores = scores_of(q);
  if (table.sinks != nullptr)
    scores = ggml_add(c, ggml_mul(c, scores, table.others), ggml_mul(c, scores_of(sink_q), table.sinks));
  ggml_tensor* weights =
      ggml_soft_max_ext(c, ggml_reshape_4d(c, scores, span, count, group, heads), table.mask, shape.scale, 0.0F);
  if (step_->input()[sequence].weights != nullptr) collect_weights(graph, in, weights, a.weights_queries);

  ggml_tensor* mixed = ggml_mul_mat(c, exact(c, values), ggml_reshape_3d(c, weights, span, count * group, heads));
  ggml_prec_set_acc(mixed, GGML_PREC_F32);
  if (count > 1) {
    mixed = ggml_reshape_4d(c, mixed, shape.value_dim, count, group, heads);
    mixed = ggml_cont(c, ggml_permute(c, mixed, 0, 3, 1, 2));
  }
  return ggml_reshape_2d(c, mixed, shape.value_dim * group * heads, count);
}

// weights [span, tokens, group, heads] -> sums over the last queries and the group, an output of the graph.
void PortablePath::collect_weights(DecoderGraph& graph, Sequence& inputs, ggml_tensor* weights, int queries) const {
  ggml_context* c = graph.context.get();
  const std::int64_t span = weights->ne[0], tokens = weights->ne[1], group = weights->ne[2], heads = weights->ne[3];
  const std::int64_t count = std::min<std::int64_t>(queries, tokens);
  ggml_tensor* last = ggml_view_4d(c, weights, span, count, group, heads, weights->nb[1], weights->nb[2],
                                   weights->nb[3], static_cast<std::size_t>(tokens - count) * weights->nb[1]);
  ggml_tensor* columns = ggml_cont(c, ggml_permute(c, last, 2, 0, 1, 3));
  ggml_tensor* sums = ggml_sum_rows(c, ggml_reshape_3d(c, columns, count * group, span, heads));
  ggml_set_output(sums);
  ggml_build_forward_expand(graph.graph, sums);
  inputs.weights.push_back(sums);
}

const float* PortablePath::sink_rows(const AttentionShape& shape, const StepTokens& t, const SlotsView& slots) {
  rows_.clear();
  for (int i = 0; i < t.count; ++i) {
    const float* row = t.rank_row + static_cast<std::ptrdiff_t>(sink_rank(t, slots, t.window, i)) * shape.rope_dims;
    rows_.insert(rows_.end(), row, row + shape.rope_dims);
  }
  return rows_.data();
}

void PortablePath::prepare(DecoderGraph& graph, const Step& step) {
  const auto& inputs = static_cast<const Inputs&>(*graph.path_inputs);
  const AttentionShape& shape = step.attention(0).shape;
  const StepTokens* tokens = step.attention(0).tokens;
  const std::size_t row = static_cast<std::size_t>(shape.head_dim) * sizeof(float);
  const auto fill = [&](const Turn& turn, const float* rows, const StepTokens& t) {
    spread_rows(shape, rows, t.count, cos_, sin_);
    ggml_backend_tensor_set(turn.cos, cos_.data(), t.first * row, t.count * row);
    ggml_backend_tensor_set(turn.sin, sin_.data(), t.first * row, t.count * row);
  };
  for (int i = 0; i < step.sequences(); ++i) {
    const StepTokens& t = tokens[i];
    const Sequence& s = inputs.sequences[i];
    const SlotsView& slots = *step.attention(0).cache[i].head[0].slots;
    const float* here = query_row(shape, t, slots, 0);  // the other tokens' rows follow
    if (inputs.query.cos != nullptr) fill(inputs.query, here, t);
    if (inputs.key.cos != nullptr) fill(inputs.key, here, t);
    if (inputs.sink_query.cos != nullptr) fill(inputs.sink_query, t.two_query ? sink_rows(shape, t, slots) : here, t);
    const int capacity = storage_of(step.input()[i]).capacity();
    for (std::size_t layer = 0; layer < s.tables.size(); ++layer)
      writer_.write(s.tables[layer], step.attention(static_cast<int>(layer)).cache[i].head, t, capacity);
    if (s.ranks != nullptr) writer_.write_ranks(s.ranks, *step.attention(0).cache[i].head[0].slots);
  }
}

void PortablePath::finish(DecoderGraph& graph, const Step& step) {
  const auto& inputs = static_cast<const Inputs&>(*graph.path_inputs);
  for (int i = 0; i < step.sequences(); ++i) {
    const Sequence& s = inputs.sequences[i];
    for (int layer = 0; layer < static_cast<int>(s.weights.size()); ++layer) {
      const AttentionStep& a = step.attention(layer);
      received_.resize(static_cast<std::size_t>(ggml_nelements(s.weights[layer])));
      ggml_backend_tensor_get(s.weights[layer], received_.data(), 0, received_.size() * sizeof(float));
      for (int head = 0; head < a.shape.kv_heads; ++head) {
        float* out = a.weights[i * a.shape.kv_heads + head];
        if (out == nullptr) continue;
        const float* sums = received_.data() + static_cast<std::ptrdiff_t>(head) * s.span;
        for (int slot = 0; slot < a.cache[i].head[head].slots->slots; ++slot)
          out[slot] = sums[slot] / static_cast<float>(a.shape.group());
        if (a.received != nullptr) a.received(a.context, layer, i, head);
      }
    }
  }
}

}  // namespace palimpsest
