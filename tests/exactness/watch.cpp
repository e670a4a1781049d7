#include "tests/exactness/watch.h"

#include <algorithm>
#include <cassert>

#include "palimpsest/attention/reference.h"
#include "palimpsest/graph/cpu/attention_op.h"
#include "palimpsest/graph/cpu/convolution.h"
#include "palimpsest/graph/cpu/scan.h"
#include "palimpsest/graph/graph.h"
#include "palimpsest/graph/step.h"

namespace palimpsest::testing {

namespace {

void keep(ggml_tensor* t) {  // its memory is not reused before the graph has run
  ggml_set_output(t);
  if (t->view_src != nullptr) ggml_set_output(t->view_src);
}

// Heads and tokens may have any stride.
std::vector<float> read(const ggml_tensor* t) {
  assert(t->type == GGML_TYPE_F32);
  std::vector<float> out(static_cast<std::size_t>(ggml_nelements(t)));
  if (ggml_is_contiguous(t)) {
    ggml_backend_tensor_get(t, out.data(), 0, ggml_nbytes(t));
    return out;
  }
  assert(t->ne[3] == 1);
  const auto width = static_cast<std::size_t>(t->ne[0]), heads = static_cast<std::size_t>(t->ne[1]);
  const bool whole = t->nb[1] == width * sizeof(float);  // a token's heads are contiguous
  const std::size_t reads = whole ? 1 : heads, row = width * (whole ? heads : 1);
  for (std::size_t i = 0; i < static_cast<std::size_t>(t->ne[2]); ++i)
    for (std::size_t h = 0; h < reads; ++h)
      ggml_backend_tensor_get(t, out.data() + (i * reads + h) * row, i * t->nb[2] + h * t->nb[1], row * sizeof(float));
  return out;
}

}  // namespace

Watch::Watch(std::unique_ptr<AttentionPath> inner, std::vector<Truth*> truths)
    : inner_(std::move(inner)), truths_(std::move(truths)) {}

ggml_tensor* Watch::build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
  std::vector<Tensors>& layers = layers_[graph.graph];
  if (!layers.empty() && layers.back().layer >= layer) layers.clear();  // another graph at the same address
  for (ggml_tensor* t : {q, k, v}) keep(t);
  ggml_tensor* out = inner_->build(graph, layer, q, k, v);
  keep(out);
  layers.push_back({layer, q, k, v, out});
  return out;
}

Truth& Watch::truth_of(const Cache* cache) {
  const auto known = std::ranges::find(caches_, cache);
  const auto index = static_cast<std::size_t>(known - caches_.begin());
  assert(index < truths_.size());
  if (known == caches_.end()) caches_.push_back(cache);
  return *truths_[index];
}

void Watch::finish(DecoderGraph& graph, const Step& step) {
  inner_->finish(graph, step);
  const LayerStep& a = step.attention(0);
  std::vector<Truth*> truths;
  for (int i = 0; i < step.sequences(); ++i) {
    const Cache* cache = step.input()[i].cache;
    truths.push_back(&truth_of(cache));
    truths.back()->begin(*cache, a.tokens[i].count);
  }
  for (const Tensors& t : layers_.at(graph.graph)) {
    const auto q = read(t.q), k = read(t.k), v = read(t.v), out = read(t.out);
    for (int i = 0; i < step.sequences(); ++i) {
      const std::ptrdiff_t first = a.tokens[i].first;
      const auto from = [&](const std::vector<float>& rows) {
        return rows.data() + first * static_cast<std::ptrdiff_t>(rows.size() / static_cast<std::size_t>(step.tokens()));
      };
      truths[i]->layer(t.layer, {from(q), from(k), from(v), from(out)});
    }
  }
  for (Truth* truth : truths) truth->end();
}

ReferencePath::ReferencePath(const Hyperparameters& hyper) {
  for (int i = 0; i < hyper.layers; ++i) calls_.push_back({this, i});
}

ggml_tensor* ReferencePath::build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
  ggml_tensor* sources[] = {q, k, v};
  return ggml_custom_4d(graph.context.get(), GGML_TYPE_F32, v->ne[0] * q->ne[1], graph.tokens, 1, 1, sources, 3, run,
                        GGML_N_TASKS_MAX, &calls_[layer]);
}

ggml_tensor* ReferencePath::convolve(DecoderGraph& graph, int layer, ggml_tensor* x, ggml_tensor* weight) {
  ggml_tensor* sources[] = {x, weight};
  return ggml_custom_4d(graph.context.get(), GGML_TYPE_F32, x->ne[0], graph.tokens, 1, 1, sources, 2, run_convolution,
                        GGML_N_TASKS_MAX, &calls_[layer]);
}

void ReferencePath::run_convolution(ggml_tensor* out, int thread, int threads, void* userdata) {
  const Call& call = *static_cast<const Call*>(userdata);
  palimpsest::convolve(*call.path->step_, call.layer, out, thread, threads);
}

ggml_tensor* ReferencePath::scan(DecoderGraph& graph, int layer, const ScanInputs& in) {
  ggml_tensor* sources[] = {in.x, in.time, in.decay, in.b, in.c, in.beta};
  return ggml_custom_4d(graph.context.get(), GGML_TYPE_F32, in.x->ne[0] * in.x->ne[1], graph.tokens, 1, 1, sources,
                        in.beta == nullptr ? 5 : 6, run_scan, GGML_N_TASKS_MAX, &calls_[layer]);
}

void ReferencePath::run_scan(ggml_tensor* out, int thread, int threads, void* userdata) {
  const Call& call = *static_cast<const Call*>(userdata);
  palimpsest::scan(*call.path->step_, call.layer, out, thread, threads);
}

void ReferencePath::run(ggml_tensor* out, int thread, int, void* userdata) {
  if (thread != 0) return;
  const Call& call = *static_cast<const Call*>(userdata);
  const LayerStep step = attention_of(*call.path->step_, call.layer, out);
  call.path->step_->report_new_kv(call.layer, step.k, step.v, 0, 1);
  call.path->step_->report_new_queries(call.layer, step.q, 0, 1);
  attention_reference(step);
}

}  // namespace palimpsest::testing
