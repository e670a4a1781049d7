#include "palimpsest/graph/decoder.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <list>
#include <mutex>
#include <string>
#include <utility>

#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/error.h"
#include "palimpsest/graph/backends.h"
#include "palimpsest/graph/cpu/attention_op.h"
#include "palimpsest/graph/device/portable.h"
#include "palimpsest/graph/graph.h"
#include "palimpsest/graph/step.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {

namespace {

constexpr std::size_t kGraphs = 4;  // cached graphs: decode, a full chunk, the last chunk, and one more
// On devices: two decode steps, each with memory of its own, and a chunk.
constexpr std::size_t kScheduledGraphs = 3;

// The name of the tensor that projects to a layer's keys or values.
std::string tensor_name(const Weights& weights, int layer, bool value) {
  const LayerWeights& w = weights.layers[static_cast<std::size_t>(layer)];
  const bool apart = (value ? w.v : w.k) != nullptr;
  return fmt::format("blk.{}.attn_{}", layer, apart ? (value ? "v" : "k") : "qkv");
}

[[noreturn]] void fail_misfit(const Misfit& m, CacheType type, const std::string& tensor) {
  const auto where = fmt::format("layer {}, head {}: ", m.layer, m.kv_head);
  const char* const what = m.value ? "value" : "key";
  if (!(m.magnitude <= kLargestElement))
    fail("{}a {} is {} ({}, or the layers before it): is the model file damaged?", where, what,
         std::isfinite(m.magnitude) ? fmt::format("too large, {:.1e}", m.magnitude) : "not a finite number", tensor);
  std::string others;  // types that can represent it
  for (const CacheType other : {CacheType::kBF16, CacheType::kF32})
    if (m.magnitude <= kv_format(other).largest)
      others += fmt::format("{}{}", others.empty() ? "" : " or ", name_of(other));
  fail("{}a {} of {:.1e} does not fit cache type {} ({}): use --cache-type-{} {}", where, what, m.magnitude,
       name_of(type), tensor, m.value ? 'v' : 'k', others);
}

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check_layers([[maybe_unused]] std::span<const SequenceStep> sequences, [[maybe_unused]] std::size_t width) {
  for ([[maybe_unused]] const SequenceStep& s : sequences) {
    assert(s.layers == sequences.front().layers && s.result == sequences.front().result);
    assert(s.layers.first == 0 || s.hidden.size() == s.tokens.size() * width);
  }
}

}  // namespace

struct Decoder::Impl {
  Impl(std::shared_ptr<const Model> m, StepThreads n, const WrapPath& wrap)
      : model(std::move(m)),
        threads(n),
        backends(*model, n),
        step(model->hyper(), !model->weights().stock_operators),
        memory(backends.host()),
        staging(ggml_backend_get_device(backends.of_layer(0))),
        logits(ggml_backend_get_device(backends.of_layer(model->hyper().layers))) {
    if (model->weights().stock_operators) {
      path = std::make_unique<PortablePath>(model->hyper(), backends);
    } else {
      auto fast = std::make_unique<AttentionOp>(model->hyper(), n.max(), &backends.pool());
      op = fast.get();
      path = std::move(fast);
    }
    if (wrap) {
      path = wrap(std::move(path));
      op = dynamic_cast<AttentionOp*>(path.get());
    }
  }

  // The layers of this step; equal for all sequences.
  LayerRange layers_of(std::span<const SequenceStep> sequences) const {
    LayerRange layers = sequences.front().layers;
    layers.last = std::min(layers.last, model->hyper().layers);
    if (layers.first < 0 || layers.first >= layers.last)
      fail("layers {} to {} of a model of {}: give at least one", layers.first, layers.last, model->hyper().layers);
    if (layers.last - layers.first < model->hyper().layers && !path->cache_options(model->hyper()).pages)
      fail(
          "steps of a range of layers are supported on the CPU's fast path only: leave out --portable, --device and "
          "--rpc");
    return layers;
  }

  DecoderGraph& graph_for(int tokens, int rows, bool rows_alone, std::uint64_t shape, LayerRange layers,
                          StepResult result) {
    auto it = std::find_if(graphs.begin(), graphs.end(), [&](const DecoderGraph& g) {
      return g.tokens == tokens && g.rows == rows && g.rows_alone == rows_alone && g.path_shape == shape &&
             g.layers == layers && g.result == result;
    });
    if (it != graphs.end() && !is_known(*it, backends, memory)) {
      graphs.erase(it);
      it = graphs.end();
    }
    if (it != graphs.end()) {
      graphs.splice(graphs.begin(), graphs, it);
      place_graph(graphs.front(), backends, memory);
      return graphs.front();
    }
    while (graphs.size() >= (backends.scheduled() ? kScheduledGraphs : kGraphs)) graphs.pop_back();
    DecoderGraph g;
    g.tokens = tokens;
    g.rows = rows;
    g.rows_alone = rows_alone;
    g.path_shape = shape;
    g.layers = layers;
    g.result = result;
    build_graph(g, *model, *path, backends, memory);
    ++counts.built;
    graphs.push_front(std::move(g));
    return graphs.front();
  }

  void embed(float* rows) {  // of the step's tokens
    const std::size_t width = static_cast<std::size_t>(model->hyper().width);
    const auto ids = step.ids();
    for (std::size_t i = 0; i < ids.size(); ++i) model->weights().embedding_row(ids[i], rows + i * width);
    const auto positions = step.learned_positions();
    position_row.resize(positions.empty() ? 0 : width);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      model->weights().position_row(positions[i], position_row.data());
      for (std::size_t d = 0; d < width; ++d) rows[i * width + d] += position_row[d];
    }
  }

  void set_inputs(DecoderGraph& g) {
    const std::size_t width = static_cast<std::size_t>(model->hyper().width);
    const bool host = ggml_backend_buffer_is_host(g.embeddings->buffer);
    float* const rows = host ? static_cast<float*>(g.embeddings->data) : staging.get(width * at(g.tokens)).data();
    if (g.layers.first == 0) {
      embed(rows);
    } else {
      float* next = rows;
      for (const SequenceStep& s : step.input()) next = std::ranges::copy(s.hidden, next).out;
    }
    if (!host) ggml_backend_tensor_set(g.embeddings, rows, 0, ggml_nbytes(g.embeddings));
    if (g.per_layer_inputs != nullptr) {
      const auto row = static_cast<std::size_t>(g.per_layer_inputs->ne[0]);
      per_layer.resize(row * step.ids().size());
      for (std::size_t i = 0; i < step.ids().size(); ++i)
        model->weights().per_layer_row(step.ids()[i], per_layer.data() + i * row);
      ggml_backend_tensor_set(g.per_layer_inputs, per_layer.data(), 0, per_layer.size() * sizeof(float));
    }
    if (g.query_temperature != nullptr) {
      const std::span<const float> factors = step.query_temperatures();
      ggml_backend_tensor_set(g.query_temperature, factors.data(), 0, factors.size_bytes());
    }
    if (g.row_ids != nullptr) ggml_backend_tensor_set(g.row_ids, step.rows().data(), 0, step.rows().size_bytes());
  }

  std::span<const float> logits_of(const DecoderGraph& g) {
    const std::size_t count = static_cast<std::size_t>(ggml_nelements(g.logits));
    if (ggml_backend_buffer_is_host(g.logits->buffer)) return {static_cast<const float*>(g.logits->data), count};
    const std::span<float> copy = logits.get(count);
    ggml_backend_tensor_get(g.logits, copy.data(), 0, copy.size_bytes());
    return copy;
  }

  std::shared_ptr<const Model> model;
  StepThreads threads;
  Backends backends;
  Step step;
  std::unique_ptr<AttentionPath> path;
  AttentionOp* op = nullptr;  // `path` if it is the fast one, else nullptr
  GraphMemory memory;
  std::list<DecoderGraph> graphs;  // most recently used first
  DecoderGraph* prepared = nullptr;
  // From prepare() to the end of run(): a sequence that is loaded meanwhile may move the memory that a graph refers to.
  std::unique_lock<std::recursive_mutex> prepared_lock;
  std::vector<float> position_row, per_layer;
  HostFloats staging, logits;
  StepTimes times;
  GraphCounts counts;
};

Decoder::Decoder(std::shared_ptr<const Model> model, StepThreads threads, const WrapPath& wrap) {
  assert(model != nullptr);
  for (const int n : {threads.decode, threads.batch})
    if (n < 1 || n > GGML_MAX_N_THREADS) fail("{} threads are not possible; use 1 to {}", n, GGML_MAX_N_THREADS);
  impl_ = std::make_unique<Impl>(std::move(model), threads, wrap);
}

Decoder::~Decoder() = default;

CacheOptions Decoder::cache_options() const {
  return impl_->path->cache_options(impl_->model->hyper());
}

void Decoder::attach_storage(Cache& cache, const AttentionRule& rule) const {
  impl_->path->attach_storage(cache, rule);
}

std::span<const float> Decoder::step(std::span<const SequenceStep> sequences) {
  prepare(sequences);
  const auto logits = run();
  for (std::size_t i = 0; i < sequences.size(); ++i) check(i);
  return logits;
}

void Decoder::prepare(std::span<const SequenceStep> sequences) {
  Impl& d = *impl_;
  const double start = now_ms();
  d.prepared = nullptr;
  d.prepared_lock = {};
  std::unique_lock lock(d.backends.mutex());
  const LayerRange layers = d.layers_of(sequences);
  d.step.prepare(sequences);
  check_layers(sequences, static_cast<std::size_t>(d.model->hyper().width));
  const std::uint64_t shape = d.path->begin(d.step);
  const bool to_the_end = layers.last == d.model->hyper().layers;
  const int rows = to_the_end ? static_cast<int>(d.step.rows().size()) : d.step.tokens();
  // With other sequences in the step, rows that are not in panels depend on the company anyway.
  const bool rows_alone = sequences.size() == 1 && sequences.front().request.drafts;
  DecoderGraph& g = d.graph_for(d.step.tokens(), rows, rows_alone, shape, layers, sequences.front().result);
  d.set_inputs(g);
  d.path->prepare(g, d.step);
  d.prepared = &g;
  d.prepared_lock = std::move(lock);
  d.times.build = now_ms() - start;
}

std::span<const float> Decoder::run() {
  Impl& d = *impl_;
  assert(d.prepared != nullptr);
  const double start = now_ms();
  const auto lock = std::exchange(d.prepared_lock, {});
  DecoderGraph& g = *std::exchange(d.prepared, nullptr);
  run_graph(g, d.backends);
  ++d.counts.run;
  d.path->finish(g, d.step);
  for (const SequenceStep& s : d.step.input())
    s.cache->state().written(static_cast<int>(s.tokens.size()), s.request.drafts);
  const std::span<const float> out = d.logits_of(g);
  d.times.compute = now_ms() - start;
  d.times.attention = d.op == nullptr ? 0 : d.op->milliseconds();
  return out;
}

std::size_t Decoder::check(std::size_t sequence) const {
  const Impl& d = *impl_;
  const auto misfit = d.path->misfit(static_cast<int>(sequence));
  if (!misfit) return d.step.input()[sequence].tokens.size();
  if (misfit->token > 0) return static_cast<std::size_t>(misfit->token);
  const LayerGeometry& g = d.step.input()[sequence].cache->geometry().layer(misfit->layer);
  fail_misfit(*misfit, misfit->value ? g.value_type : g.key_type,
              tensor_name(d.model->weights(), misfit->layer, misfit->value));
}

void Decoder::measure_attention(bool on) {
  if (impl_->op != nullptr) impl_->op->measure(on);
}

std::size_t Decoder::graph_bytes() const {
  std::size_t bytes = impl_->memory.bytes();
  for (const DecoderGraph& graph : impl_->graphs) bytes += memory_of(graph.own_schedule.get(), impl_->backends);
  bytes += memory_of(impl_->memory.chunks().schedule.get(), impl_->backends);
  return bytes;
}

const GraphCounts& Decoder::graph_counts() const {
  return impl_->counts;
}

StepThreads Decoder::threads() const {
  return impl_->threads;
}
std::shared_ptr<Workers> Decoder::workers() const {
  return impl_->backends.shared_pool();
}
const Model& Decoder::model() const {
  return *impl_->model;
}
const StepTimes& Decoder::times() const {
  return impl_->times;
}

}  // namespace palimpsest
