#include "palimpsest/graph/device/portable.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "palimpsest/graph/graph.h"

namespace palimpsest {

namespace {

constexpr std::size_t kShapesKnown = 16;

// Drafts that have no slots stand behind those of the tables.
int span_of(const Cache& cache, const StepTokens& tokens) {
  const int slots = std::max(1, cache.slots() + (tokens.draft_rows == nullptr ? 0 : tokens.count - 1));
  return (slots + kStorageSlots - 1) / kStorageSlots * kStorageSlots;  // a multiple, so that few graphs are built
}

// A multiple of some slots, at most `span`: the first ones, which hold all sinks of all heads.
int sink_span_of(const Cache& cache, const StepTokens& tokens, int span) {
  constexpr int kFew = 32;
  if (!tokens.two_query) return 0;
  int slots = 1;
  for (int t = 0; t < cache.tables(); ++t) {
    const SlotsView view = cache.table(t).view();
    for (int s = slots; s < view.slots; ++s)
      if (view.relative[s] < tokens.sink_end) slots = s + 1;
  }
  return std::min(span, (slots + kFew - 1) / kFew * kFew);
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
    : layers_(hyper.layers), backends_(backends), model_(hyper) {
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

PortableStorage& PortablePath::storage_of(const SequenceStep& sequence) {
  return static_cast<PortableStorage&>(*sequence.cache->storage());
}

void PortablePath::attach_storage(Cache& cache, const AttentionRule& rule) const {
  std::vector<int> paired;  // dimensions
  for (int layer = 0; layer < layers_; ++layer) {
    const AttentionShape& shape = model_.attention(layer).shape;
    paired.push_back(shape.rope == RopeKind::kPairs ? shape.rope_dims : 0);
  }
  cache.attach(std::make_unique<PortableStorage>(cache.options(), backends_, takes_flash(cache.options(), rule),
                                                 std::move(paired)));
}

std::uint64_t PortablePath::begin(const Step& step) {
  step_ = &step;
  const AttentionStep& a = step.attention(0);
  Shape shape;
  for (int i = 0; i < step.sequences(); ++i) {
    const SequenceStep& sequence = step.input()[i];
    const StepTokens& tokens = a.tokens[i];
    for (int layer = 0; layer < layers_; ++layer) require_supported(step.attention(layer), i);
    if (sequence.cache->storage() == nullptr) attach_storage(*sequence.cache, sequence.rule);
    PortableStorage& storage = storage_of(sequence);
    storage.apply_moves();
    const int span = span_of(*sequence.cache, tokens);
    assert(!storage.has_scores() || (sequence.fading && span <= storage.capacity()));  // Cache::fetch_scores()
    storage.reserve(span);
    storage.set_first_draft_slot(sequence.cache->slots());
    if (sequence.fading && !storage.has_scores()) {
      storage.reserve_scores();
      for (int t = 0; t < sequence.cache->tables(); ++t)
        storage.write_scores(t, std::as_const(*sequence.cache).table(t).score());
    }
    const int ranks = ranks_needed(step, i);
    for (int layer = 0; ranks > 0 && layer < layers_; ++layer)
      if (const AttentionStep& each = step.attention(layer); each.shape.kv_heads > 0)
        ranks_of(layer).reserve(each.shape, each.tokens[i].rank_row, ranks);
    const auto sink_span = static_cast<std::uint64_t>(sink_span_of(*sequence.cache, tokens, span));
    shape.insert(shape.end(),
                 {storage.generation(), static_cast<std::uint64_t>(span), sink_span,
                  static_cast<std::uint64_t>(tokens.count), tokens.two_query,
                  static_cast<std::uint64_t>(tokens.rotation), queries_at_rank(tokens), tokens.head_window != nullptr,
                  sequence.weights != nullptr, static_cast<std::uint64_t>(sequence.weights_queries),
                  sequence.weights_rows.size(), std::bit_cast<std::uint32_t>(sequence.fading.value_or(-1))});
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
  std::size_t nodes = 48 + 160 * static_cast<std::size_t>(step_->sequences());
  for (const SequenceStep& sequence : step_->input())
    nodes += 10 * (1 + sequence.weights_rows.size()) + (sequence.fading ? 20 : 0);
  return nodes;
}

void PortablePath::make_inputs(DecoderGraph& graph) const {
  ggml_context* c = graph.context.get();
  const AttentionStep& a = step_->attention(0);
  auto inputs = std::make_unique<Inputs>();
  const auto layers = static_cast<std::size_t>(layers_), sequences = static_cast<std::size_t>(step_->sequences());
  const std::size_t tensors = (10 * layers + 2) * sequences + 2 * ranks_.size();
  for (ggml_backend_t backend : backends_.all()) inputs->blocks.emplace_back(backend, tensors);
  inputs->tables_in_blocks = step_->tokens() == step_->sequences();
  inputs->by_position.resize(ranks_.size());
  for (int i = 0; i < step_->sequences(); ++i) {
    const Cache& cache = *step_->input()[i].cache;
    const StepTokens& tokens = a.tokens[i];
    const bool one = heads_share_slots(cache, tokens);
    Sequence s;
    s.queries_at_rank = queries_at_rank(tokens);
    PortableStorage& storage = storage_of(step_->input()[i]);
    s.flash = storage.flash() && !tokens.two_query;
    const TableNeeds needs = {.tokens = tokens.count,
                              .span = span_of(cache, tokens),
                              .sink_span = sink_span_of(cache, tokens, span_of(cache, tokens)),
                              .shared = one,
                              .two_query = tokens.two_query,
                              .rotated = tokens.rotation != Rotation::kNever,
                              .query_ranks = s.queries_at_rank,
                              .key_ranks = tokens.rotation == Rotation::kOnRead,
                              .value_rows = !storage.values_in_rows(),
                              .block = nullptr};
    make_tables(c, needs, *inputs, s);
    if (step_->input()[i].weights != nullptr) make_weights(*inputs, s, step_->input()[i]);
    if (step_->input()[i].fading) make_victims(*inputs, s);
    for (int layer = 0; layer < layers_ && tokens.rotation == Rotation::kOnWrite && !s.queries_at_rank; ++layer) {
      RopeRows& by_position = inputs->by_position[rank_table_of(layer)];
      if (by_position.cos != nullptr || step_->attention(layer).shape.kv_heads == 0) continue;
      const auto row = [&] {
        return new_input(c, inputs->block_of(backends_.index_of(layer)), GGML_TYPE_F32,
                         {a.shape.head_dim, 1, graph.tokens, 1});
      };
      by_position = {row(), row()};
    }
    inputs->sequences.push_back(std::move(s));
  }
  for (StepBlock& block : inputs->blocks) block.place();
  graph.path_inputs = std::move(inputs);
}

// Makes one table for all layers of a device with the same slots, window and RoPE table.
void PortablePath::make_tables(ggml_context* c, TableNeeds needs, Inputs& inputs, Sequence& sequence) const {
  for (int layer = 0; layer < layers_; ++layer) {
    const AttentionStep& a = step_->attention(layer);
    if (a.shape.kv_heads == 0) {
      sequence.table_of.push_back(-1);
      continue;
    }
    const auto same = [&](const Table& t) {
      return needs.shared && step_->attention(t.layer).local == a.local &&
             step_->attention(t.layer).chunked == a.chunked && step_->rope_of(t.layer) == step_->rope_of(layer) &&
             backends_.index_of(t.layer) == backends_.index_of(layer);
    };
    const auto known = std::ranges::find_if(sequence.tables, same);
    sequence.table_of.push_back(static_cast<int>(known - sequence.tables.begin()));
    if (known != sequence.tables.end()) continue;
    needs.block = inputs.block_of(backends_.index_of(layer));
    sequence.tables.push_back(make_table(c, needs, layer));
  }
}

PortablePath::Table PortablePath::make_table(ggml_context* c, const TableNeeds& needs, int layer) const {
  Table table;
  table.layer = layer;
  const AttentionShape& shape = step_->attention(layer).shape;
  const std::int64_t heads = needs.heads(shape);
  table.in = new_table_inputs(c, shape, needs);
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
  auto& inputs = static_cast<Inputs&>(*graph.path_inputs);
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
      const int layer = step.first_layer(rope);
      if (s.queries_at_rank || layer < 0) continue;
      const StepTokens& t = step.attention(layer).tokens[i];
      if (t.key_row == nullptr) continue;
      expand_rows(first.shape, t.key_row, t.count, cos_, sin_);
      for (std::size_t b = 0; b < backends_.all().size(); ++b) {
        const RopeRows& rows = inputs.by_position[static_cast<std::size_t>(rope) * backends_.all().size() + b];
        if (rows.cos == nullptr) continue;
        set_input(inputs.block_of(b), rows.cos, std::as_bytes(std::span(cos_)), t.first * row);
        set_input(inputs.block_of(b), rows.sin, std::as_bytes(std::span(sin_)), t.first * row);
      }
    }
    const PortableStorage& storage = storage_of(step.input()[i]);
    for (const Table& table : s.tables)
      writer_.write(table.in, step.attention(table.layer), i, storage.capacity(), storage.draft_slot(0));
    if (!s.victims.empty()) write_guards(inputs, s, step.input()[i]);
  }
  for (StepBlock& block : inputs.blocks) block.send();
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
    if (!inputs.sequences[i].weights.empty()) read_weights(inputs.sequences[i], i, step);
    if (!inputs.sequences[i].victims.empty()) read_victims(inputs.sequences[i], step.input()[i]);
  }
}

// Memory for the weights of all layers of a device.
void PortablePath::make_weights(Inputs& inputs, Sequence& sequence, const SequenceStep& step) const {
  std::vector<std::int64_t> floats(backends_.all().size());
  for (int layer = 0; layer < layers_; ++layer) {
    const AttentionStep& a = step_->attention(layer);
    if (a.shape.kv_heads == 0 || a.kv_layer != layer) continue;
    const auto rows = static_cast<std::int64_t>(std::max<std::size_t>(1, step.weights_rows.size()));
    floats[backends_.index_of(layer)] += rows * sequence.table(layer).in.mask->ne[0] * a.shape.kv_heads;
  }
  for (std::size_t b = 0; b < floats.size(); ++b)
    sequence.weights.push_back(floats[b] == 0 ? nullptr : inputs.blocks[b].add_result(GGML_TYPE_F32, floats[b]));
}

void PortablePath::read_weights(const Sequence& inputs, int sequence, const Step& step) {
  std::size_t read = SIZE_MAX;  // the device whose weights were read last
  for (const auto& [layer, first] : inputs.weights_of) {
    const AttentionStep& a = step.attention(layer);
    if (const std::size_t b = backends_.index_of(layer); b != read) {
      read = b;
      read_weights_.resize(static_cast<std::size_t>(ggml_nelements(inputs.weights[b])));
      ggml_backend_tensor_get(inputs.weights[b], read_weights_.data(), 0, read_weights_.size() * sizeof(float));
    }
    const int heads = a.shape.kv_heads;
    const std::int64_t span = inputs.table(layer).in.mask->ne[0];
    const std::ptrdiff_t rows = std::max<std::ptrdiff_t>(1, std::ssize(a.tokens[sequence].weights_rows));
    for (std::ptrdiff_t row = 0; row < rows; ++row)
      for (int head = 0; head < heads; ++head) {
        float* out = a.weights[sequence * heads + head];
        if (out == nullptr) continue;
        out += row * a.tokens[sequence].weights_stride;
        const float* sums = read_weights_.data() + static_cast<std::ptrdiff_t>(first) + (row * heads + head) * span;
        for (int slot = 0; slot < a.cache[sequence].head[head].slots->slots; ++slot)
          out[slot] = sums[slot] / static_cast<float>(a.shape.group());
      }
    for (int head = 0; a.on_weights != nullptr && head < heads; ++head)
      if (a.weights[sequence * heads + head] != nullptr) a.on_weights(a.context, layer, sequence, head);
  }
}

}  // namespace palimpsest
