#include "palimpsest/graph/cpu/attention_op.h"

#include <algorithm>
#include <chrono>

#include "palimpsest/attention/recalled.h"
#include "palimpsest/graph/cpu/convolution.h"
#include "palimpsest/graph/cpu/scan.h"
#include "palimpsest/graph/graph.h"
#include "palimpsest/graph/in_parts.h"
#include "palimpsest/graph/step.h"

namespace palimpsest {

namespace {

template <typename T>
Heads<T> heads_of(const ggml_tensor* t) {
  return {static_cast<T*>(t->data), static_cast<std::int64_t>(t->nb[2] / sizeof(float)),
          static_cast<std::int64_t>(t->nb[1] / sizeof(float))};
}

// In the cache, at least; once for each token.
double numbers_read(const LayerStep& a) {
  double slots = 0;
  for (int i = 0; i < a.sequences; ++i)
    slots += static_cast<double>(a.cache[i].head[0].slots->slots) * a.tokens[i].count;
  return slots * a.shape.kv_heads * (a.shape.head_dim + a.shape.value_dim);
}

constexpr double kRecallWork = 1e6;  // numbers read by a layer: enough for all threads

Recalled recalled_by(const SequenceStep& s, int head) {
  return {.pages = s.recall->pages(head),
          .layout = s.recall->layout(head),
          .max_pages = s.recall_pages,
          .choice = s.recall->choice(head),
          .chooses = s.recall_chooses};
}

}  // namespace

LayerStep attention_of(const Step& step, int layer, const ggml_tensor* out) {
  LayerStep a = step.attention(layer);
  a.q = heads_of<const float>(out->src[0]);
  a.k = heads_of<const float>(out->src[1]);
  a.v = heads_of<const float>(out->src[2]);
  a.out.data = static_cast<float*>(out->data);
  a.out.token_stride = static_cast<std::int64_t>(out->nb[1] / sizeof(float));
  a.out.head_stride = a.shape.value_dim;
  return a;
}

AttentionOp::AttentionOp(const Hyperparameters& hyper, int threads, Workers* pool) : threads_(threads), pool_(pool) {
  for (int i = 0; i < hyper.layers; ++i) calls_.push_back({this, i});
}

// Pages are read at run time: the graph does not depend on them.
std::uint64_t AttentionOp::begin(const Step& step) {
  recalls_ = std::ranges::any_of(step.input(), [](const SequenceStep& s) { return s.recall != nullptr; });
  return recalls_ ? 1 : 0;
}

ggml_tensor* AttentionOp::build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
  ggml_tensor* sources[] = {q, k, v};
  ggml_tensor* const kept = ggml_custom_4d(graph.context.get(), GGML_TYPE_F32, v->ne[0] * q->ne[1], graph.tokens, 1, 1,
                                           sources, 3, run, GGML_N_TASKS_MAX, &calls_[layer]);
  if (!recalls_) return kept;
  return ggml_custom_inplace(graph.context.get(), kept, sources, 3, run_recall, GGML_N_TASKS_MAX, &calls_[layer]);
}

ggml_tensor* AttentionOp::convolve(DecoderGraph& graph, int layer, ggml_tensor* x, ggml_tensor* weight) {
  ggml_tensor* sources[] = {x, weight};
  return ggml_custom_4d(graph.context.get(), GGML_TYPE_F32, x->ne[0], graph.tokens, 1, 1, sources, 2, run_convolution,
                        GGML_N_TASKS_MAX, &calls_[layer]);
}

void AttentionOp::run_convolution(ggml_tensor* out, int thread, int threads, void* userdata) {
  const Call& call = *static_cast<const Call*>(userdata);
  in_parts(call.op->pool_, thread, threads, static_cast<double>(ggml_nelements(out)),
           [&](int part, int parts) { palimpsest::convolve(*call.op->step_, call.layer, out, part, parts); });
}

ggml_tensor* AttentionOp::scan(DecoderGraph& graph, int layer, const ScanInputs& in) {
  ggml_tensor* sources[] = {in.x, in.time, in.decay, in.b, in.c, in.beta};
  return ggml_custom_4d(graph.context.get(), GGML_TYPE_F32, in.x->ne[0] * in.x->ne[1], graph.tokens, 1, 1, sources,
                        in.beta == nullptr ? 5 : 6, run_scan, GGML_N_TASKS_MAX, &calls_[layer]);
}

void AttentionOp::run_scan(ggml_tensor* out, int thread, int threads, void* userdata) {
  const Call& call = *static_cast<const Call*>(userdata);
  const int width = call.op->step_->state(call.layer).state_heads.state_width;
  in_parts(call.op->pool_, thread, threads, static_cast<double>(ggml_nelements(out)) * width,
           [&](int part, int parts) { palimpsest::scan(*call.op->step_, call.layer, out, part, parts); });
}

void AttentionOp::prepare(DecoderGraph&, const Step& step) {
  step_ = &step;
  milliseconds_ = 0;
  misfits_.clear();
  for (const Call& call : calls_)
    if (step.attention(call.layer).shape.kv_heads > 0) scratch_.reserve(step.attention(call.layer), threads_);

  if (recalls_) prepare_recall(step);

  // Built once for all heads and layers with the same RoPE table and the same slots.
  const auto sequences = static_cast<std::size_t>(step.sequences()), layers = calls_.size();
  rank_tiles_of_.assign(sequences * layers, nullptr);
  const auto rotated_on_read = [&](const SequenceStep& s) { return unrotated_keys(s.rule.rotation); };
  if (std::ranges::none_of(step.input(), rotated_on_read)) return;
  rank_tiles_.resize(std::max(rank_tiles_.size(), rank_tiles_of_.size()));
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const LayerStep& a = step.attention(static_cast<int>(layer));
    if (a.shape.kv_heads == 0) continue;
    for (std::size_t i = 0; i < sequences; ++i) {
      if (!unrotated_keys(a.tokens[i].rotation) || !step.input()[i].cache->options().shared) continue;
      const std::size_t same = first_equal(static_cast<int>(layer), i);
      const float*& of = rank_tiles_of_[layer * sequences + i];
      of = rank_tiles_of_[same * sequences + i];
      if (of != nullptr) continue;
      const SlotsView& slots = *a.cache[i].head[0].slots;
      std::vector<float>& tiles = rank_tiles_[layer * sequences + i];
      tiles.resize(std::max(tiles.size(), rank_tile_floats(a.shape, slots)));
      make_rank_tiles(a.shape, a.tokens[i].rank_row, slots, tiles.data());
      of = tiles.data();
    }
  }
}

void AttentionOp::prepare_recall(const Step& step) {
  const auto tokens_of = [](const LayerStep& a, int i) {
    return static_cast<std::size_t>(a.tokens[i].count) * static_cast<std::size_t>(a.shape.group());
  };
  log_sums_.clear();
  first_log_sum_.clear();
  std::size_t most = 0, memory = 0;
  for (const Call& call : calls_) {
    const LayerStep& a = step.attention(call.layer);
    first_log_sum_.push_back(log_sums_.size());
    std::size_t floats = 0;
    for (int i = 0; i < a.sequences; ++i) {
      const SequenceStep& s = step.input()[static_cast<std::size_t>(i)];
      const bool recalls = s.recall != nullptr && a.shape.kv_heads > 0 && a.local == INT32_MAX;
      for (int head = 0; head < a.shape.kv_heads; ++head) {
        log_sums_.push_back(nullptr);
        if (!recalls) continue;
        floats += tokens_of(a, i);
        memory = std::max(memory, recalled_floats(a.shape, recalled_by(s, a.first_head + head)));
      }
    }
    most = std::max(most, floats);
  }
  log_sum_.resize(std::max(log_sum_.size(), most));
  recall_memory_.resize(static_cast<std::size_t>(threads_));
  for (auto& each : recall_memory_) each.resize(std::max(each.size(), memory));
  for (const Call& call : calls_) {
    const LayerStep& a = step.attention(call.layer);
    float* next = log_sum_.data();
    float** at = log_sums_.data() + first_log_sum_[static_cast<std::size_t>(call.layer)];
    for (int i = 0; i < a.sequences; ++i)
      for (int head = 0; head < a.shape.kv_heads; ++head, ++at) {
        if (step.input()[static_cast<std::size_t>(i)].recall == nullptr || a.local != INT32_MAX) continue;
        *at = next;
        next += tokens_of(a, i);
      }
  }
}

void AttentionOp::run_recall(ggml_tensor* out, int thread, int threads, void* userdata) {
  const Call& call = *static_cast<const Call*>(userdata);
  AttentionOp& op = *call.op;
  LayerStep step = op.step_->attention(call.layer);
  step.q = heads_of<const float>(out->src[1]);
  step.out = {static_cast<float*>(out->data), static_cast<std::int64_t>(out->nb[1] / sizeof(float)),
              step.shape.value_dim};
  step.log_sums = op.log_sums_.data() + op.first_log_sum_[static_cast<std::size_t>(call.layer)];
  const int heads = step.sequences * step.shape.kv_heads;
  const auto start = std::chrono::steady_clock::now();
  in_parts(op.pool_, thread, threads, kRecallWork, [&](int part, int parts) {
    for (int i = part; i < heads; i += parts) {
      if (step.log_sums[i] == nullptr) continue;
      const int sequence = i / step.shape.kv_heads, head = i % step.shape.kv_heads;
      const Recalled from = recalled_by(op.step_->input()[static_cast<std::size_t>(sequence)], step.first_head + head);
      if (from.pages.pages > 0)
        attend_recalled(step, sequence, head, from, op.recall_memory_[static_cast<std::size_t>(part)].data());
    }
  });
  if (thread == 0 && op.measure_)
    op.milliseconds_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// The first layer with the same slots and the same RoPE table.
std::size_t AttentionOp::first_equal(int layer, std::size_t sequence) const {
  const SlotsView* const slots = step_->attention(layer).cache[sequence].head[0].slots;
  int first = 0;
  while (first < layer &&
         (step_->attention(first).shape.kv_heads == 0 || step_->rope_of(first) != step_->rope_of(layer) ||
          step_->attention(first).cache[sequence].head[0].slots != slots))
    ++first;
  return static_cast<std::size_t>(first);
}

void AttentionOp::run(ggml_tensor* out, int thread, int threads, void* userdata) {
  const Call& call = *static_cast<const Call*>(userdata);
  LayerStep step = attention_of(*call.op->step_, call.layer, out);
  step.rank_tiles = call.op->rank_tiles_of_.data() + static_cast<std::ptrdiff_t>(call.layer) * step.sequences;
  step.misfits = &call.op->misfits_;
  if (call.op->recalls_)
    step.log_sums = call.op->log_sums_.data() + call.op->first_log_sum_[static_cast<std::size_t>(call.layer)];
  const auto attend = [&](int part, int parts) {
    call.op->step_->report_new_kv(call.layer, step.k, step.v, part, parts);
    call.op->step_->report_new_queries(call.layer, step.q, part, parts);
    attention_cpu(step, call.op->scratch_, part, parts);
  };
  const auto start = std::chrono::steady_clock::now();
  in_parts(call.op->pool_, thread, threads, numbers_read(step), attend);
  if (thread == 0 && call.op->measure_)
    call.op->milliseconds_ +=
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace palimpsest
