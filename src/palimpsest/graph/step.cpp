#include "palimpsest/graph/step.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "palimpsest/core/error.h"

namespace palimpsest {

Step::Step(const Hyperparameters& hyper, bool materialize) : hyper_(hyper), materialize_(materialize) {
  for (int i = 0; i < hyper.ropes(); ++i) ropes_.emplace_back(hyper.rope_table(i));
  layers_.resize(hyper.layers);
  for (int i = 0; i < hyper.layers; ++i) {
    const RopeOptions& rope = hyper.rope_table(hyper.rope_of(i));
    const std::vector<float> none, &sinks = hyper.sink_logits.empty() ? none : hyper.sink_logits[i],
                                   &factor = hyper.query_factors.empty() ? none : hyper.query_factors[i];
    layers_[i].layer = i;
    layers_[i].kv_layer = hyper.kv_layer(i);
    const LayerGeometry& g = hyper.geometry.layer(layers_[i].kv_layer);
    layers_[i].first_head = hyper.geometry.first_head(layers_[i].kv_layer);
    layers_[i].shape = {.query_heads = g.query_heads,
                        .kv_heads = g.kv_heads,
                        .head_dim = g.key_width,
                        .value_dim = g.value_width,
                        .scale = hyper.attention_scale,
                        .rope = rope.kind,
                        .rope_dims = rope.dims,
                        .alibi = hyper.alibi.empty() ? nullptr : hyper.alibi.data(),
                        .soft_cap = hyper.attention_soft_cap,
                        .sink_logits = sinks.empty() ? nullptr : sinks.data(),
                        .query_factor = factor.empty() ? nullptr : factor.data()};
    layers_[i].local = g.window;
    layers_[i].chunked = g.chunked;
  }
}

int Step::first_layer(int rope) const {
  for (int layer = 0; layer < hyper_.layers; ++layer)
    if (rope_of(layer) == rope && hyper_.geometry.layer(layer).kv_heads > 0) return layer;
  return -1;
}

void Step::Rope::grow_ranks(int count) {
  const std::size_t width = 2 * static_cast<std::size_t>(frequencies.pairs());
  std::size_t known = width == 0 ? 0 : rank_rows.size() / width;
  if (known < static_cast<std::size_t>(count)) {
    rank_rows.reserve(std::max(2 * rank_rows.size(), count * width));
    rank_rows.resize(count * width);
    for (; known < static_cast<std::size_t>(count); ++known)
      frequencies.row(static_cast<Position>(known), rank_rows.data() + known * width);
  }
}

void Step::Rope::grow_distances(int count) {
  const std::size_t width = 2 * static_cast<std::size_t>(frequencies.pairs());
  for (std::size_t d = width == 0 ? count : distance_rows.size() / width; d < static_cast<std::size_t>(count); ++d) {
    distance_rows.resize((d + 1) * width);
    float* const row = distance_rows.data() + d * width;
    frequencies.row(static_cast<Position>(d), row);
    for (std::size_t i = 0; i < width; ++i) row[i] = static_cast<float>(row[i] / frequencies.magnitude());
  }
}

namespace {

// Rows of the distance table: 0 if no merged token has a position of its own.
int distances_needed(const Cache& cache) {
  int max = 0;
  for (int t = 0; t < cache.tables() && cache.merged(t) != nullptr; ++t) {
    const MergedView view = cache.merged(t)->view();
    if (view.distance != nullptr) max = std::max(max, view.max_distance + 1);
  }
  return max;
}

// Rows of the rank table that a sequence's keys and queries may need.
int ranks_needed(const SequenceStep& s) {
  const AttentionRule& rule = s.rule;
  if (!unrotated_keys(rule.rotation) && !rule.two_query && !rule.rotated_at_rank) return 0;
  const int without_slots = s.request.draft_rows == nullptr ? 0 : static_cast<int>(s.tokens.size()) - 1;
  int max = s.cache->occupied() + without_slots;
  const Position end = s.cache->next() + without_slots;
  if (end <= s.cache->options().original_until) max = static_cast<int>(end);
  const auto behind_mask = [&](std::int32_t window) {
    if (rule.two_query && window != INT32_MAX)  // a query's rank is at most its position
      max = static_cast<int>(std::max<Position>(max, std::min(end, Position{rule.sinks} + window)));
  };
  if (rule.has_window()) behind_mask(rule.window);
  for (const std::int32_t window : rule.head_window) behind_mask(window);
  return max;
}

}  // namespace

void Step::prepare(std::span<const SequenceStep> sequences) {
  assert(!sequences.empty());
  const auto count = sequences.size();
  input_ = sequences;
  ids_.clear();
  rows_.clear();
  learned_positions_.clear();
  query_temperatures_.clear();
  buffers_.resize(std::max(buffers_.size(), count));

  // The rank tables grow first: they may move in memory.
  int max_ranks = 0, max_distances = 0;
  bool weights = false, sums = false;
  for (const SequenceStep& s : sequences) {
    assert(s.cache != nullptr);
    [[maybe_unused]] const Rotation rotation = s.rule.rotation;
    const CacheOptions& c = s.cache->options();
    assert(c.geometry.layers() == hyper_.layers && c.geometry.heads() == hyper_.geometry.heads());
    assert((rotation != Rotation::kOnRead && rotation != Rotation::kMaterialized) || c.track_rank);
    assert(!c.rotated_half || rotation == Rotation::kOnRead);
    static_cast<void>(c);
    max_ranks = std::max(max_ranks, ranks_needed(s));
    max_distances = std::max(max_distances, distances_needed(*s.cache));
    assert(c.state_floats == hyper_.state_floats());
    RecurrentState& state = s.cache->state();
    state.reserve(s.request.drafts ? static_cast<int>(s.tokens.size()) : 1);
    if (s.layers.first == 0) state.begin();
    weights = weights || s.weights != nullptr;
    sums = sums || s.sums != nullptr;
  }
  for (Rope& rope : ropes_) {
    if (hyper_.rope.kind != RopeKind::kNone) rope.grow_ranks(max_ranks), rope.grow_distances(max_distances);
    rope.tokens.assign(count, {});
  }

  for (std::size_t i = 0; i < count; ++i) {
    const SequenceStep& s = sequences[i];
    SequenceTokens& t = ropes_.front().tokens[i];
    t.first = static_cast<int>(ids_.size());
    t.count = static_cast<int>(s.tokens.size());
    for (const TokenId id : s.tokens) {
      if (id < 0 || id >= hyper_.vocabulary)
        fail("token {} is not in the model's vocabulary of {}; was it made by another model's tokenizer?", id,
             hyper_.vocabulary);
      ids_.push_back(id);
    }
    prepare_sequence(s, buffers_[i], t);
    for (std::size_t other = 1; other < ropes_.size(); ++other) ropes_[other].tokens[i] = t;
    prepare_rows(s, buffers_[i], i);
    for (int k = s.all_logits ? 0 : t.count - 1; k < t.count; ++k) rows_.push_back(t.first + k);
  }
  tokens_ = static_cast<int>(ids_.size());

  views_.resize(hyper_.layers * count);
  const HeadGeometry& geometry = hyper_.geometry;
  weights_.assign(weights ? geometry.heads() * count : 0, nullptr);
  sums_.assign(sums ? geometry.heads() * count : 0, nullptr);
  for (int layer = 0; layer < hyper_.layers; ++layer) {
    LayerStep& a = layers_[layer];
    const std::size_t first = geometry.first_head(layer), heads = geometry.layer(layer).kv_heads;
    for (std::size_t i = 0; i < count; ++i) {
      views_[layer * count + i] = sequences[i].cache->view(a.kv_layer);
      const auto copy_heads = [&](float* const* from, std::vector<float*>& to) {
        if (from == nullptr) return;
        std::copy_n(from + first, heads, to.begin() + static_cast<std::ptrdiff_t>(first * count + i * heads));
      };
      copy_heads(sequences[i].weights, weights_);
      copy_heads(sequences[i].sums, sums_);
    }
    a.cache = views_.data() + layer * count;
    a.tokens = ropes_[static_cast<std::size_t>(hyper_.rope_of(layer))].tokens.data();
    a.sequences = static_cast<int>(count);
    const bool own = a.kv_layer == layer;  // only its own attention is reported
    a.weights = weights && own ? weights_.data() + first * count : nullptr;
    a.sums = sums && own ? sums_.data() + first * count : nullptr;
    a.on_weights = weights && own ? report_weights : nullptr;
    a.find_patches = find_patches;
    a.context = this;
  }
}

void Step::report_weights(void* step, int layer, int sequence, int kv_head) {
  const Step& self = *static_cast<const Step*>(step);
  AttentionReceiver* const receiver = self.input_[sequence].receiver;
  if (receiver != nullptr)
    receiver->receive({.kind = StepSignal::Kind::kWeights, .head = self.hyper_.geometry.head(layer, kv_head)});
}

std::span<const SlotPatch> Step::find_patches(void* step, const LayerStep& a, int sequence, int kv_head, int query) {
  const Step& self = *static_cast<const Step*>(step);
  const int token = a.tokens[sequence].first + query - 1;
  const LayerGeometry& g = self.hyper_.geometry.layer(a.layer);
  return self.input_[sequence].receiver->find_patches(self.hyper_.geometry.head(a.layer, kv_head), query,
                                                      {a.k.at(token, kv_head), 1, g.key_width, a.k.token_stride},
                                                      {a.v.at(token, kv_head), 1, g.value_width, a.v.token_stride});
}

bool Step::report_kv() const {
  return std::ranges::any_of(input_, &SequenceStep::report_kv);
}

void Step::report_new_kv(int layer, const Heads<const float>& k, const Heads<const float>& v, int thread,
                         int threads) const {
  for (int i = 0, unit = 0; i < sequences(); ++i) {
    if (!input_[i].report_kv) continue;
    const SequenceTokens& tokens = attention(layer).tokens[i];
    const LayerGeometry& g = hyper_.geometry.layer(layer);
    for (int head = 0; head < g.kv_heads; ++head, ++unit)
      if (unit % threads == thread)
        input_[i].receiver->receive(
            {.kind = StepSignal::Kind::kKeysAndValues,
             .head = hyper_.geometry.head(layer, head),
             .rows = {k.at(tokens.first, head), tokens.count, g.key_width, k.token_stride},
             .values = {v.at(tokens.first, head), tokens.count, g.value_width, v.token_stride}});
  }
}

void Step::report_new_queries(int layer, const Heads<const float>& q, int thread, int threads) const {
  const LayerGeometry& g = hyper_.geometry.layer(layer);
  for (int i = 0, unit = 0; i < sequences(); ++i) {
    if (!input_[i].report_queries) continue;
    const SequenceTokens& tokens = attention(layer).tokens[i];
    for (int head = 0; head < g.kv_heads; ++head, ++unit)
      for (int member = 0; unit % threads == thread && member < g.group(); ++member)
        input_[i].receiver->receive(
            {.kind = StepSignal::Kind::kQueries,
             .head = hyper_.geometry.head(layer, head),
             .member = member,
             .rows = {q.at(tokens.first, head * g.group() + member), tokens.count, g.key_width, q.token_stride}});
  }
}

void Step::prepare_sequence(const SequenceStep& s, Buffers& b, SequenceTokens& out) {
  // Tables of other layers may be at another token.
  const HeadGeometry& geometry = hyper_.geometry;
  const int head = geometry.first_head(s.layers.first), end = geometry.end_head(s.layers.last);
  const SlotTable& table = s.cache->table(head < end ? s.cache->table_of(head) : 0);
  const int count = out.count;
  [[maybe_unused]] const int inserted = static_cast<int>(table.inserted().size());
  assert(count > 0 && inserted == (s.request.draft_rows == nullptr ? count : 1));
  const Position first = table.position(table.inserted().front());
  for (int other = head; other < end; ++other) {
    [[maybe_unused]] const SlotTable& of_head = s.cache->table(s.cache->table_of(other));
    assert(of_head.base() == table.base() && of_head.next() == table.next());
  }

  b.relative.resize(count);
  for (int i = 0; i < count; ++i) b.relative[i] = static_cast<std::int32_t>(first + i - table.base());
  out.relative = b.relative.data();
  out.position = first;
  static_cast<AttentionRule&>(out) = s.rule;
  static_cast<AttentionRequest&>(out) = s.request;
  assert(out.head_window.empty() || out.head_window.size() == static_cast<std::size_t>(hyper_.geometry.heads()));
  if (s.rule.sinks > 0)
    out.sink_end = table.relative_position(s.rule.sinks - 1) + 1;  // saturates as the tokens' relative positions do

  assert(!s.rule.rank_distance || s.cache->options().track_rank);
  if (hyper_.rope.kind == RopeKind::kNone) out.rotation = Rotation::kNever;
  if (!materialize_ && out.rotation == Rotation::kMaterialized) out.rotation = Rotation::kOnRead;
  for (int i = 0; hyper_.query_temperature_slope != 0 && i < count; ++i) {
    const Position interval = hyper_.query_temperature_interval;
    const double steps = std::log1p(static_cast<double>((first + i + hyper_.query_temperature_offset) / interval));
    query_temperatures_.push_back(static_cast<float>(1 + hyper_.query_temperature_slope * steps));
  }
  if (hyper_.learned_positions == 0) return;
  if (first + count > hyper_.learned_positions)
    fail(
        "position {} exceeds the model's {} learned positions, which cannot be renumbered: use a shorter text, or "
        "--method window-recompute",
        first + count - 1, hyper_.learned_positions);
  for (int i = 0; i < count; ++i) learned_positions_.push_back(static_cast<std::int32_t>(first + i));
}

// Cosines and sines of the new tokens, for each RoPE table of the model.
void Step::prepare_rows(const SequenceStep& s, Buffers& b, std::size_t sequence) {
  if (hyper_.rope.kind == RopeKind::kNone || s.rule.rotation == Rotation::kNever) return;
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    SequenceTokens& out = ropes_[i].tokens[sequence];
    out.rank_row = ropes_[i].rank_rows.data();
    if (!ropes_[i].distance_rows.empty()) out.distance_row = ropes_[i].distance_rows.data();
    if (s.rule.rotation != Rotation::kOnWrite || s.rule.rotated_at_rank) continue;
    const std::size_t width = 2 * static_cast<std::size_t>(ropes_[i].frequencies.pairs());
    b.rows[i].resize(static_cast<std::size_t>(out.count) * width);
    for (int k = 0; k < out.count; ++k)
      ropes_[i].frequencies.row(out.position + k, b.rows[i].data() + static_cast<std::size_t>(k) * width);
    out.key_row = b.rows[i].data();
  }
}

}  // namespace palimpsest
