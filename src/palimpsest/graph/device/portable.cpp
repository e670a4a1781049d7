#include "palimpsest/graph/device/portable.h"

#include <algorithm>
#include <cassert>

#include "palimpsest/graph/graph.h"
#include "palimpsest/graph/step.h"

namespace palimpsest {

namespace {

constexpr int kSpan = 256;  // a graph attends to a multiple of this many slots, so that few graphs are built
constexpr std::size_t kShapesKnown = 16;

int span_of(const Cache& cache) {
  int slots = 1;
  for (int t = 0; t < cache.tables(); ++t) slots = std::max(slots, cache.table(t).slots());
  return (slots + kSpan - 1) / kSpan * kSpan;
}

// Whether new tokens are rotated by their rank in each head, not by position.
bool queries_at_rank(const StepTokens& tokens) {
  return tokens.rotation == Rotation::kOnRead || (tokens.rotation == Rotation::kOnWrite && tokens.key_row == nullptr);
}

// Whether all heads of all layers have the same slots and the same window.
bool heads_share_slots(const Cache& cache, const StepTokens& tokens) {
  return cache.options().shared && tokens.head_window == nullptr;
}

// Rows of the rank table that this step's keys and queries need.
int ranks_needed(const Step& step, int sequence) {
  const StepTokens& t = step.attention(0).tokens[sequence];
  const Cache& cache = *step.input()[sequence].cache;
  if (t.rotation == Rotation::kNever) return 0;
  int max = queries_at_rank(t) ? cache.occupied() : 0;
  if (!t.two_query) return max;
  for (int layer = 0; layer < cache.geometry().layers(); ++layer) {
    const AttentionStep& a = step.attention(layer);
    for (int h = 0; h < a.shape.kv_heads; ++h)
      max = std::max(max, 1 + sink_rank(t, *a.cache[sequence].head[h].slots, a.window(sequence, h), t.count - 1));
  }
  return max;
}

}  // namespace

PortablePath::PortablePath(const Hyperparameters& hyper, const Backends& backends)
    : layers_(hyper.layers), backends_(backends) {
  for (int i = 0; i < hyper.ropes(); ++i)
    for (ggml_backend_t backend : backends.all()) ranks_.emplace_back(backend);
}

std::size_t PortablePath::rank_table_of(int layer) const {
  return static_cast<std::size_t>(step_->rope_of(layer)) * backends_.all().size() + backends_.index_of(layer);
}

CacheOptions PortablePath::cache_options(const Hyperparameters& hyper) const {
  CacheOptions options = cache_shape(hyper);
  options.pages = false;
  return options;
}

PortableStorage& PortablePath::storage_of(const SequenceStep& sequence) const {
  if (sequence.cache->storage() == nullptr)
    sequence.cache->attach(std::make_unique<PortableStorage>(sequence.cache->options(), backends_));
  return static_cast<PortableStorage&>(*sequence.cache->storage());
}

std::uint64_t PortablePath::begin(const Step& step) {
  step_ = &step;
  const AttentionStep& a = step.attention(0);
  Shape shape;
  for (int i = 0; i < step.sequences(); ++i) {
    const SequenceStep& sequence = step.input()[i];
    const StepTokens& tokens = a.tokens[i];
    for (int layer = 0; layer < layers_; ++layer) require_supported(step.attention(layer), i);
    PortableStorage& storage = storage_of(sequence);
    storage.apply_moves();
    const int span = span_of(*sequence.cache);
    storage.reserve(span);
    const int ranks = ranks_needed(step, i);
    for (int layer = 0; ranks > 0 && layer < layers_; ++layer)
      if (const AttentionStep& each = step.attention(layer); each.shape.kv_heads > 0)
        ranks_of(layer).reserve(each.shape, each.tokens[i].rank_row, ranks);
    shape.insert(shape.end(),
                 {storage.generation(), static_cast<std::uint64_t>(span), static_cast<std::uint64_t>(tokens.count),
                  tokens.two_query, static_cast<std::uint64_t>(tokens.rotation), queries_at_rank(tokens),
                  tokens.head_window != nullptr, sequence.weights != nullptr,
                  static_cast<std::uint64_t>(sequence.weights_queries), sequence.weights_rows.size()});
    shape.insert(shape.end(), sequence.weights_rows.begin(), sequence.weights_rows.end());
  }
  for (const RankTable& ranks : ranks_) shape.push_back(ranks.generation());
  shape.push_back(step.report_kv());

  const auto known = std::find_if(shapes_.begin(), shapes_.end(), [&](const auto& s) { return s.first == shape; });
  if (known != shapes_.end()) return known->second;
  if (shapes_.size() == kShapesKnown) shapes_.pop_front();
  shapes_.emplace_back(std::move(shape), ++last_shape_);
  return last_shape_;
}

std::size_t PortablePath::nodes_per_layer() const {
  std::size_t nodes = 48 + 96 * static_cast<std::size_t>(step_->sequences());
  for (const SequenceStep& sequence : step_->input()) nodes += 5 * sequence.weights_rows.size();
  return nodes;
}

void PortablePath::make_inputs(DecoderGraph& graph) const {
  ggml_context* c = graph.context.get();
  const AttentionStep& a = step_->attention(0);
  auto inputs = std::make_unique<Inputs>();
  inputs->by_position.resize(static_cast<std::size_t>(step_->ropes()));
  for (int i = 0; i < step_->sequences(); ++i) {
    const Cache& cache = *step_->input()[i].cache;
    const StepTokens& tokens = a.tokens[i];
    const bool one = heads_share_slots(cache, tokens);
    Sequence s;
    s.queries_at_rank = queries_at_rank(tokens);
    const TableNeeds needs = {.tokens = tokens.count,
                              .span = span_of(cache),
                              .shared = one,
                              .two_query = tokens.two_query,
                              .rotated = tokens.rotation != Rotation::kNever,
                              .query_ranks = s.queries_at_rank,
                              .key_ranks = tokens.rotation == Rotation::kOnRead};
    make_tables(c, needs, s);
    if (tokens.rotation == Rotation::kOnWrite && !s.queries_at_rank)
      for (RopeRows& by_position : inputs->by_position)
        if (by_position.cos == nullptr) by_position = new_rope_rows(c, a.shape, graph.tokens);
    inputs->sequences.push_back(std::move(s));
  }
  graph.path_inputs = std::move(inputs);
}

// Makes one table for all layers with the same slots, window and RoPE table.
void PortablePath::make_tables(ggml_context* c, const TableNeeds& needs, Sequence& sequence) const {
  for (int layer = 0; layer < layers_; ++layer) {
    const AttentionStep& a = step_->attention(layer);
    if (a.shape.kv_heads == 0) {
      sequence.table_of.push_back(-1);
      continue;
    }
    const bool by_rank = needs.query_ranks || needs.key_ranks || needs.two_query;
    const auto same = [&](const Table& t) {
      return needs.shared && step_->attention(t.layer).local == a.local &&
             step_->attention(t.layer).chunked == a.chunked && step_->rope_of(t.layer) == step_->rope_of(layer) &&
             (!by_rank || backends_.index_of(t.layer) == backends_.index_of(layer));
    };
    const auto known = std::ranges::find_if(sequence.tables, same);
    sequence.table_of.push_back(static_cast<int>(known - sequence.tables.begin()));
    if (known != sequence.tables.end()) continue;
    sequence.tables.push_back(make_table(c, needs, layer));
  }
}

PortablePath::Table PortablePath::make_table(ggml_context* c, const TableNeeds& needs, int layer) const {
  Table table;
  table.layer = layer;
  const AttentionShape& shape = step_->attention(layer).shape;
  const std::int64_t heads = needs.heads(shape);
  table.in = new_table_inputs(c, shape, needs);
  table.span = needs.span;
  const auto rows = [&](ggml_tensor* ranks, std::int64_t b, std::int64_t cc, std::int64_t d) {
    if (ranks == nullptr) return RopeRows{};
    const auto of = [&](ggml_tensor* all) {
      return ggml_reshape_4d(c, ggml_get_rows(c, all, ranks), shape.head_dim, b, cc, d);
    };
    const RopeRows& known = ranks_of(layer).rows();
    return RopeRows{of(known.cos), of(known.sin)};
  };
  table.query = rows(table.in.query_ranks, 1, heads, needs.tokens);
  table.sink_query = rows(table.in.sink_ranks, 1, heads, needs.tokens);
  table.keys = rows(table.in.key_ranks, needs.span, heads, 1);
  return table;
}

void PortablePath::prepare(DecoderGraph& graph, const Step& step) {
  const auto& inputs = static_cast<const Inputs&>(*graph.path_inputs);
  const AttentionStep& first = step.attention(0);
  const std::size_t row = static_cast<std::size_t>(first.shape.head_dim) * sizeof(float);
  for (const auto& [layer, logits] : inputs.sink_logits)
    ggml_backend_tensor_set(logits, step.attention(layer).shape.sink_logits, 0, ggml_nbytes(logits));
  for (const auto& [layer, factor] : inputs.query_factors) {
    const AttentionShape& shape = step.attention(layer).shape;
    std::vector<float> ordered(shape.query_factor, shape.query_factor + shape.head_dim);
    for (int d = 0; shape.rope == RopeKind::kPairs && d < shape.rope_dims; ++d)  // as neighbours_to_halves
      ordered[at(d % 2 * shape.rope_dims / 2 + d / 2)] = shape.query_factor[d];
    ggml_backend_tensor_set(factor, ordered.data(), 0, ggml_nbytes(factor));
  }
  constexpr std::int32_t kFirst = 0;
  if (inputs.first_state != nullptr) ggml_backend_tensor_set(inputs.first_state, &kFirst, 0, sizeof kFirst);
  for (const State& s : inputs.states)
    ggml_backend_tensor_set(s.before, step.input()[s.sequence].cache->state().before() + s.offset, 0,
                            ggml_nbytes(s.before));
  for (int i = 0; i < step.sequences(); ++i) {
    const Sequence& s = inputs.sequences[i];
    for (int rope = 0; rope < step.ropes(); ++rope) {
      const RopeRows& by_position = inputs.by_position[rope];
      const int layer = step.first_layer(rope);
      if (by_position.cos == nullptr || s.queries_at_rank || layer < 0) continue;
      const StepTokens& t = step.attention(layer).tokens[i];
      expand_rows(first.shape, t.key_row, t.count, cos_, sin_);
      ggml_backend_tensor_set(by_position.cos, cos_.data(), t.first * row, t.count * row);
      ggml_backend_tensor_set(by_position.sin, sin_.data(), t.first * row, t.count * row);
    }
    const int capacity = storage_of(step.input()[i]).capacity();
    for (const Table& table : s.tables) writer_.write(table.in, step.attention(table.layer), i, capacity);
  }
}

void PortablePath::finish(DecoderGraph& graph, const Step& step) {
  const auto& inputs = static_cast<const Inputs&>(*graph.path_inputs);
  for (const State& s : inputs.states)
    ggml_backend_tensor_get(s.after, step.input()[s.sequence].cache->state().outcome(0) + s.offset, 0,
                            ggml_nbytes(s.after));
  for (const NewKv& token : inputs.new_kv) {
    const auto rows = [](const ggml_tensor* t, std::vector<float>& memory) -> Heads<const float> {
      memory.resize(static_cast<std::size_t>(ggml_nelements(t)));
      ggml_backend_tensor_get(t, memory.data(), 0, memory.size() * sizeof(float));
      return {memory.data(), t->ne[0] * t->ne[1], t->ne[0]};
    };
    step.report_new_kv(token.layer, rows(token.keys, new_keys_), rows(token.values, new_values_), 0, 1);
  }
  for (int i = 0; i < step.sequences(); ++i) {
    const Sequence& s = inputs.sequences[i];
    for (const auto& [layer, rows] : s.weights) {
      const AttentionStep& a = step.attention(layer);
      for (std::size_t row = 0; row < rows.size(); ++row) {
        read_weights_.resize(static_cast<std::size_t>(ggml_nelements(rows[row])));
        ggml_backend_tensor_get(rows[row], read_weights_.data(), 0, read_weights_.size() * sizeof(float));
        for (int head = 0; head < a.shape.kv_heads; ++head) {
          float* out = a.weights[i * a.shape.kv_heads + head];
          if (out == nullptr) continue;
          out += static_cast<std::ptrdiff_t>(row) * a.tokens[i].weights_stride;
          const float* sums = read_weights_.data() + static_cast<std::ptrdiff_t>(head) * s.tables.front().span;
          for (int slot = 0; slot < a.cache[i].head[head].slots->slots; ++slot)
            out[slot] = sums[slot] / static_cast<float>(a.shape.group());
        }
      }
      for (int head = 0; a.on_weights != nullptr && head < a.shape.kv_heads; ++head)
        if (a.weights[i * a.shape.kv_heads + head] != nullptr) a.on_weights(a.context, layer, i, head);
    }
  }
}

}  // namespace palimpsest
