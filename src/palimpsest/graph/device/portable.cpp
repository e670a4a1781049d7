#include "palimpsest/graph/device/portable.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "palimpsest/graph/graph.h"

namespace palimpsest {

namespace {

constexpr std::size_t kShapesKnown = 16;

// Drafts that have no slots stand behind those of the tables.
int span_of(const Cache& cache, const SequenceTokens& tokens) {
  const int slots = std::max(1, cache.slots() + (tokens.draft_rows == nullptr ? 0 : tokens.count - 1));
  return (slots + kStorageSlots - 1) / kStorageSlots * kStorageSlots;  // a multiple, so that few graphs are built
}

// A multiple of some slots, at most `span`: the first ones, which hold all sinks of all heads.
int sink_span_of(const Cache& cache, const SequenceTokens& tokens, int span) {
  constexpr int kFew = 32;
  int slots = 1;
  for (int t = 0; t < cache.tables(); ++t) {
    const SlotsView view = cache.table(t).view();
    for (int s = slots; s < view.slots; ++s)
      if (view.relative[s] < tokens.sink_end) slots = s + 1;
  }
  return std::min(span, (slots + kFew - 1) / kFew * kFew);
}

// Whether new tokens are rotated by their rank in each head, not by position.
bool queries_at_rank(const SequenceTokens& tokens) {
  return tokens.rotation == Rotation::kOnRead || (tokens.rotation == Rotation::kOnWrite && tokens.key_row == nullptr);
}

// Whether all heads of all layers have the same slots and the same window. Heads with tables of their own do until the
// first eviction: one mask serves them while a prompt is read.
bool heads_share_slots(const Cache& cache, const SequenceTokens& tokens) {
  return tokens.head_window.empty() && (cache.options().shared || cache.nothing_evicted());
}

// Whether heads with tables of their own all have full ones, of one size: then a token sees the same slots in each.
bool all_full(const Step& step, int sequence) {
  const SequenceTokens& tokens = step.attention(0).tokens[sequence];
  const Cache& cache = *step.input()[sequence].cache;
  if (tokens.count > 1 || tokens.window != INT32_MAX || !tokens.head_window.empty()) return false;
  if (heads_share_slots(cache, tokens)) return false;
  const int slots = cache.slots();
  for (int layer = 0; layer < cache.geometry().layers(); ++layer) {
    const LayerStep& a = step.attention(layer);
    for (int h = 0; h < a.shape.kv_heads; ++h)
      if (const SlotsView& view = *a.cache[sequence].head[h].slots;
          view.occupied != slots || view.slots != slots || view.later > 0)
        return false;
  }
  return true;
}

// Rows of the rank table that this step's keys and queries need.
int ranks_needed(const Step& step, int sequence) {
  const SequenceTokens& t = step.attention(0).tokens[sequence];
  const Cache& cache = *step.input()[sequence].cache;
  if (t.rotation == Rotation::kNever) return 0;
  const bool original = cache.next() <= cache.options().original_until;
  int max = !queries_at_rank(t) ? 0 : original ? static_cast<int>(cache.next()) : cache.occupied();
  if (!t.two_query) return max;
  for (int layer = 0; layer < cache.geometry().layers(); ++layer) {
    const LayerStep& a = step.attention(layer);
    for (int h = 0; h < a.shape.kv_heads; ++h)
      max = std::max(max, 1 + sink_rank(t, *a.cache[sequence].head[h].slots, a.window(sequence, h), t.count - 1));
  }
  return max;
}

}  // namespace

PortablePath::PortablePath(const Hyperparameters& hyper, const Backends& backends)
    : layers_(hyper.layers), backends_(backends), model_(hyper), pool_(backends) {
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
  cache.attach(std::make_unique<PortableStorage>(cache.options(), pool_, takes_flash(cache.options(), rule),
                                                 std::move(paired), rotated_sinks(cache.options(), rule)));
}

// Device memory for a sequence's new tokens, and what else of it must be there before the step.
void PortablePath::reserve(const Step& step, int i) {
  const SequenceStep& sequence = step.input()[i];
  const SequenceTokens& tokens = step.attention(0).tokens[i];
  for (int layer = 0; layer < layers_; ++layer) require_supported(step.attention(layer), i);
  if (sequence.cache->storage() == nullptr) attach_storage(*sequence.cache, sequence.rule);
  PortableStorage& storage = storage_of(sequence);
  storage.apply_moves();
  const int span = span_of(*sequence.cache, tokens);
  storage.reserve(std::max(span, sequence.expected_slots));
  if (storage.sinks() > 0) storage.rotate_sinks(sinks_of(step, i) == Sinks::kRotated);
  storage.set_first_draft_slot(sequence.cache->slots());
  if (sequence.fading && !storage.has_scores()) {
    storage.reserve_scores();
    for (int t = 0; t < sequence.cache->tables(); ++t)
      storage.write_scores(t, std::as_const(*sequence.cache).table(t).score());
  }
  const int ranks = ranks_needed(step, i);
  for (int layer = 0; ranks > 0 && layer < layers_; ++layer)
    if (const LayerStep& each = step.attention(layer); each.shape.kv_heads > 0)
      ranks_of(layer).reserve(each.shape, each.tokens[i].rank_row, ranks);
}

PortablePath::Sinks PortablePath::sinks_of(const Step& step, int i) const {
  const SequenceTokens& t = step.attention(0).tokens[i];
  const Cache& cache = *step.input()[i].cache;
  if (!t.two_query) return Sinks::kAlike;
  const int sinks = storage_of(step.input()[i]).sinks();
  if (sinks == 0) return Sinks::kScoredApart;
  bool alike = true, in_front = true;
  for (int layer = 0; layer < layers_; ++layer) {
    const LayerStep& a = step.attention(layer);
    const int tables =
        cache.options().shared && t.head_window.empty() ? std::min(1, a.shape.kv_heads) : a.shape.kv_heads;
    for (int h = 0; h < tables; ++h) {
      const SlotsView& slots = *a.cache[i].head[h].slots;
      alike = alike && sink_rank(t, slots, a.window(i, h), t.count - 1) == t.position + t.count - 1;
      for (int slot = 0; slot < sinks; ++slot)
        in_front = in_front && slot < slots.slots && slots.relative[slot] < t.sink_end;
    }
    if (cache.options().shared && t.head_window.empty() && tables > 0) break;
  }
  if (alike) return Sinks::kAlike;
  return t.count == 1 && in_front ? Sinks::kRotated : Sinks::kScoredApart;
}

// Whether a sequence of one token is the next of a batch: its seat is, and the graph treats it alike.
bool PortablePath::joins(const Step& step, const Batch& batch, int i) const {
  const SequenceStep &last = step.input()[i - 1], &next = step.input()[i];
  const SequenceTokens &a = step.attention(0).tokens[i - 1], &b = step.attention(0).tokens[i];
  const PortableStorage &one = storage_of(last), &other = storage_of(next);
  const bool shared = heads_share_slots(*next.cache, b);
  return batch.sinks != Sinks::kScoredApart && sinks_of(step, i) == batch.sinks && a.count == 1 && b.count == 1 &&
         one.seat().slab() == other.seat().slab() && one.seat().index() + 1 == other.seat().index() &&
         one.flash() == other.flash() && a.rotation == b.rotation && queries_at_rank(a) == queries_at_rank(b) &&
         heads_share_slots(*last.cache, a) == shared && all_full(step, i - 1) == all_full(step, i) &&
         a.head_window.empty() == b.head_window.empty() && (last.weights != nullptr) == (next.weights != nullptr) &&
         a.weights_queries == b.weights_queries && std::ranges::equal(a.weights_rows, b.weights_rows) &&
         last.fading == next.fading && !has_mask_per_query_head(step.attention(0).shape, shared);
}

void PortablePath::find_batches(const Step& step) {
  batches_.clear();
  for (int i = 0; i < step.sequences(); ++i) {
    const SequenceStep& sequence = step.input()[i];
    const SequenceTokens& tokens = step.attention(0).tokens[i];
    const int span = span_of(*sequence.cache, tokens);
    if (!batches_.empty() && joins(step, batches_.back(), i)) {
      ++batches_.back().count;
      batches_.back().span = std::max(batches_.back().span, span);
    } else {
      const Sinks sinks = sinks_of(step, i);
      const int apart = sinks == Sinks::kScoredApart ? sink_span_of(*sequence.cache, tokens, span) : 0;
      batches_.push_back({.first = i, .span = span, .sink_span = apart, .sinks = sinks});
    }
  }
}

std::uint64_t PortablePath::begin(const Step& step) {
  step_ = &step;
  for (int i = 0; i < step.sequences(); ++i) reserve(step, i);  // may move others' seats
  find_batches(step);
  Shape shape;
  for (const Batch& batch : batches_) {
    const SequenceStep& sequence = step.input()[batch.first];
    const SequenceTokens& tokens = step.attention(0).tokens[batch.first];
    const StorageSeat& seat = storage_of(sequence).seat();
    shape.insert(shape.end(), {seat->generation(), static_cast<std::uint64_t>(seat.index()),
                               static_cast<std::uint64_t>(batch.count), static_cast<std::uint64_t>(batch.span),
                               static_cast<std::uint64_t>(batch.sink_span), static_cast<std::uint64_t>(tokens.count),
                               static_cast<std::uint64_t>(batch.sinks), static_cast<std::uint64_t>(tokens.rotation),
                               queries_at_rank(tokens), heads_share_slots(*sequence.cache, tokens),
                               !tokens.head_window.empty(), sees_by_order(tokens), all_full(step, batch.first),
                               sequence.weights != nullptr, static_cast<std::uint64_t>(tokens.weights_queries),
                               tokens.weights_rows.size(), std::bit_cast<std::uint32_t>(sequence.fading.value_or(-1))});
    shape.insert(shape.end(), tokens.weights_rows.begin(), tokens.weights_rows.end());
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
  std::size_t nodes = 48 + 32 * static_cast<std::size_t>(step_->sequences());  // recurrent layers: of each sequence
  for (const Batch& batch : batches_)
    nodes += 180 + 10 * (1 + step_->input()[batch.first].request.weights_rows.size()) +
             2 * at(step_->input()[batch.first].cache->geometry().max_group());
  return nodes;
}

void PortablePath::make_inputs(DecoderGraph& graph) const {
  ggml_context* c = graph.context.get();
  const LayerStep& a = step_->attention(0);
  auto inputs = std::make_unique<Inputs>();
  const std::size_t tensors = (14 * static_cast<std::size_t>(layers_) + 2) * batches_.size() + 2 * ranks_.size();
  for (ggml_backend_t backend : backends_.all()) inputs->blocks.emplace_back(backend, tensors);
  inputs->tables_in_blocks = step_->tokens() == step_->sequences();
  inputs->by_position.resize(ranks_.size());
  for (const Batch& batch : batches_) {
    const SequenceStep& sequence = step_->input()[batch.first];
    const SequenceTokens& tokens = a.tokens[batch.first];
    BatchInputs in;
    in.batch = batch;
    in.queries_at_rank = queries_at_rank(tokens);
    const PortableStorage& storage = storage_of(sequence);
    in.flash = storage.flash() && batch.sinks != Sinks::kScoredApart;
    const TableNeeds needs = {.tokens = tokens.count,
                              .sequences = batch.count,
                              .span = batch.span,
                              .sink_span = batch.sink_span,
                              .shared = heads_share_slots(*sequence.cache, tokens),
                              .two_query = batch.sinks == Sinks::kScoredApart,
                              .rotated = tokens.rotation != Rotation::kNever,
                              .rotated_sinks = batch.sinks == Sinks::kRotated ? storage.sinks() : 0,
                              .query_ranks = in.queries_at_rank,
                              .key_ranks = tokens.rotation == Rotation::kOnRead,
                              .value_rows = !storage.values_in_rows(),
                              .distances = sees_by_order(tokens),
                              .one_mask = all_full(*step_, batch.first),
                              .block = nullptr};
    make_tables(c, needs, *inputs, in);
    if (sequence.weights != nullptr) make_weights(*inputs, in, sequence);
    if (sequence.fading) make_victims(*inputs, in);
    for (int layer = 0; layer < layers_ && tokens.rotation == Rotation::kOnWrite && !in.queries_at_rank; ++layer) {
      RopeRows& by_position = inputs->by_position[rank_table_of(layer)];
      const AttentionShape& shape = step_->attention(layer).shape;  // heads of one RoPE table have one width
      if (by_position || shape.kv_heads == 0) continue;
      const auto row = [&] {
        return new_input(c, inputs->block_of(backends_.index_of(layer)), GGML_TYPE_F32,
                         {shape.head_dim, 1, graph.tokens, 1});
      };
      if (graph.tokens == 1) {
        by_position = new_rotation(c, inputs->block_of(backends_.index_of(layer)), shape);
        by_position.magnitude = static_cast<float>(step_->rope_magnitude(layer));
      } else {
        by_position = {row(), row()};
      }
    }
    inputs->batches.push_back(std::move(in));
  }
  for (StepBlock& block : inputs->blocks) block.place();
  graph.path_inputs = std::move(inputs);
}

// Makes one table for all layers of a device with the same slots, window and RoPE table.
void PortablePath::make_tables(ggml_context* c, TableNeeds needs, Inputs& inputs, BatchInputs& batch) const {
  for (int layer = 0; layer < layers_; ++layer) {
    const LayerStep& a = step_->attention(layer);
    if (a.shape.kv_heads == 0) {
      batch.table_of.push_back(-1);
      continue;
    }
    const auto same = [&](const Table& t) {
      return needs.shared && step_->attention(t.layer).local == a.local &&
             step_->attention(t.layer).chunked == a.chunked &&
             step_->attention(t.layer).shape.value_dim == a.shape.value_dim &&
             step_->rope_of(t.layer) == step_->rope_of(layer) &&
             backends_.index_of(t.layer) == backends_.index_of(layer);
    };
    const auto known = std::ranges::find_if(batch.tables, same);
    batch.table_of.push_back(static_cast<int>(known - batch.tables.begin()));
    if (known != batch.tables.end()) continue;
    needs.block = inputs.block_of(backends_.index_of(layer));
    batch.tables.push_back(make_table(c, needs, layer));
  }
}

PortablePath::Table PortablePath::make_table(ggml_context* c, TableNeeds needs, int layer) const {
  Table table;
  table.layer = layer;
  const LayerStep& a = step_->attention(layer);
  const AttentionShape& shape = a.shape;
  const bool sees_all = a.local == INT32_MAX && !has_mask_per_query_head(shape, needs.shared);
  needs.distances = needs.distances && sees_all;
  needs.one_mask = needs.one_mask && sees_all;
  const std::int64_t heads = needs.heads(shape);
  table.in = new_table_inputs(c, shape, needs);
  const std::int64_t queries = std::int64_t{needs.tokens} * needs.sequences;
  const auto rows = [&](ggml_tensor* ranks, std::int64_t b, std::int64_t cc, std::int64_t d) {
    if (ranks == nullptr) return RopeRows{};
    const auto of = [&](ggml_tensor* all) {
      return ggml_reshape_4d(c, ggml_get_rows(c, all, ranks), shape.head_dim, b, cc, d);
    };
    const RopeRows& known = ranks_of(layer).rows();
    return RopeRows{of(known.cos), of(known.sin)};
  };
  table.query = rows(table.in.query_ranks, 1, heads, queries);
  table.sink_query = rows(table.in.sink_ranks, 1, heads, queries);
  table.keys = rows(table.in.key_ranks, needs.span, heads, needs.sequences);
  return table;
}

void PortablePath::prepare(DecoderGraph& graph, const Step& step) {
  auto& inputs = static_cast<Inputs&>(*graph.path_inputs);
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
  for (BatchInputs& in : inputs.batches) {
    for (int i = in.batch.first; i < in.batch.first + in.batch.count; ++i) {
      for (int rope = 0; rope < step.ropes(); ++rope) {
        const int layer = step.first_layer(rope);
        if (in.queries_at_rank || layer < 0) continue;
        const SequenceTokens& t = step.attention(layer).tokens[i];
        if (t.key_row == nullptr) continue;
        const AttentionShape& shape = step.attention(layer).shape;
        const std::size_t row = static_cast<std::size_t>(shape.head_dim) * sizeof(float);
        expand_rows(shape, t.key_row, t.count, cos_, sin_);
        for (std::size_t b = 0; b < backends_.all().size(); ++b) {
          const RopeRows& rows = inputs.by_position[static_cast<std::size_t>(rope) * backends_.all().size() + b];
          if (rows.inverse != nullptr) set_rotation(inputs.block_of(b), rows, shape, t.key_row, inverse_);
          if (rows.cos == nullptr) continue;
          set_input(inputs.block_of(b), rows.cos, std::as_bytes(std::span(cos_)), t.first * row);
          set_input(inputs.block_of(b), rows.sin, std::as_bytes(std::span(sin_)), t.first * row);
        }
      }
      const PortableStorage& storage = storage_of(step.input()[i]);
      for (Table& table : in.tables)
        writer_.write(table.in, step.attention(table.layer), i, i - in.batch.first, storage.capacity(),
                      storage.draft_slot(0));
    }
    if (!in.victims.empty()) write_guards(inputs, in, step);
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
  for (const BatchInputs& in : inputs.batches) {
    if (!in.weights.empty()) read_weights(in, step);
    if (!in.victims.empty()) read_victims(in, step);
  }
}

// Memory for the weights of all layers of a device.
void PortablePath::make_weights(Inputs& inputs, BatchInputs& in, const SequenceStep& step) const {
  std::vector<std::int64_t> floats(backends_.all().size());
  for (int layer = 0; layer < layers_; ++layer) {
    const LayerStep& a = step_->attention(layer);
    if (a.shape.kv_heads == 0 || a.kv_layer != layer) continue;
    const auto rows = static_cast<std::int64_t>(std::max<std::size_t>(1, step.request.weights_rows.size()));
    floats[backends_.index_of(layer)] += rows * in.batch.span * a.shape.kv_heads * in.batch.count;
  }
  for (std::size_t b = 0; b < floats.size(); ++b)
    in.weights.push_back(floats[b] == 0 ? nullptr : inputs.blocks[b].add_result(GGML_TYPE_F32, floats[b]));
}

void PortablePath::read_weights(const BatchInputs& in, const Step& step) {
  std::size_t read = SIZE_MAX;  // the device whose weights were read last
  for (const auto& [layer, first] : in.weights_of) {
    const LayerStep& a = step.attention(layer);
    if (const std::size_t b = backends_.index_of(layer); b != read) {
      read = b;
      read_weights_.resize(static_cast<std::size_t>(ggml_nelements(in.weights[b])));
      ggml_backend_tensor_get(in.weights[b], read_weights_.data(), 0, read_weights_.size() * sizeof(float));
    }
    const int heads = a.shape.kv_heads;
    for (int i = 0; i < in.batch.count; ++i) {
      const int sequence = in.batch.first + i;
      const std::ptrdiff_t rows = std::max<std::ptrdiff_t>(1, std::ssize(a.tokens[sequence].weights_rows));
      for (std::ptrdiff_t row = 0; row < rows; ++row)
        for (int head = 0; head < heads; ++head) {
          float* out = a.weights[sequence * heads + head];
          if (out == nullptr) continue;
          out += row * a.tokens[sequence].weights_stride;
          const float* sums = read_weights_.data() + static_cast<std::ptrdiff_t>(first) +
                              ((row * in.batch.count + i) * heads + head) * in.batch.span;
          for (int slot = 0; slot < a.cache[sequence].head[head].slots->slots; ++slot)
            out[slot] = sums[slot] / static_cast<float>(a.shape.group());
        }
      for (int head = 0; a.on_weights != nullptr && head < heads; ++head)
        if (a.weights[sequence * heads + head] != nullptr) a.on_weights(a.context, layer, sequence, head);
    }
  }
}

}  // namespace palimpsest
