#include "palimpsest/model/graph.h"

#include <ggml-alloc.h>

#include "palimpsest/core/error.h"
#include "palimpsest/model/backend.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {

namespace {

constexpr std::size_t kNodesPerLayer = 48, kNodesBeside = 64;  // without the path's

class Builder {
 public:
  Builder(DecoderGraph& graph, const Model& model, AttentionPath& path)
      : g_(graph), c_(graph.context.get()), h_(model.hyper()), w_(model.weights()), path_(path) {}

  void run() {
    g_.embeddings = ggml_new_tensor_2d(c_, GGML_TYPE_F32, h_.width, g_.tokens);
    ggml_set_input(g_.embeddings);
    if (g_.rows < g_.tokens) {
      g_.row_ids = ggml_new_tensor_1d(c_, GGML_TYPE_I32, g_.rows);
      ggml_set_input(g_.row_ids);
    }
    ggml_tensor* x = g_.embeddings;
    for (int i = 0; i < h_.layers; ++i) x = layer(i, x);
    g_.logits = ggml_mul_mat(c_, w_.output, norm(x, w_.output_norm));
    ggml_set_output(g_.logits);
    ggml_build_forward_expand(g_.graph, g_.logits);
  }

 private:
  ggml_tensor* norm(ggml_tensor* x, ggml_tensor* weight) {
    return ggml_mul(c_, ggml_rms_norm(c_, x, h_.norm_epsilon), weight);
  }
  ggml_tensor* linear(ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* x) {
    ggml_tensor* y = ggml_mul_mat(c_, weight, x);
    return bias == nullptr ? y : ggml_add(c_, y, bias);
  }
  ggml_tensor* heads(ggml_tensor* x, int dim, int count) { return ggml_reshape_3d(c_, x, dim, count, g_.tokens); }

  ggml_tensor* layer(int i, ggml_tensor* x) {
    const LayerWeights& l = w_.layers[i];
    ggml_tensor* in = norm(x, l.attention_norm);
    ggml_tensor* q = heads(linear(l.q, l.q_bias, in), h_.head_dim, h_.query_heads);
    ggml_tensor* k = heads(linear(l.k, l.k_bias, in), h_.head_dim, h_.kv_heads);
    ggml_tensor* v = heads(linear(l.v, l.v_bias, in), h_.value_dim, h_.kv_heads);
    if (l.q_norm != nullptr) q = norm(q, l.q_norm);
    if (l.k_norm != nullptr) k = norm(k, l.k_norm);
    ggml_tensor* mixed = path_.build(g_, i, q, k, v);
    // After the last layer's attention only the rows whose logits are wanted go on.
    if (i + 1 == h_.layers && g_.row_ids != nullptr) {
      mixed = ggml_get_rows(c_, mixed, g_.row_ids);
      x = ggml_get_rows(c_, x, g_.row_ids);
    }
    x = ggml_add(c_, linear(l.attention_output, l.attention_bias, mixed), x);
    return ggml_add(c_, feed_forward(l, norm(x, l.feed_forward_norm)), x);
  }
  ggml_tensor* feed_forward(const LayerWeights& l, ggml_tensor* x) {
    ggml_tensor* gate = ggml_mul_mat(c_, l.gate, x);
    ggml_tensor* up = ggml_mul_mat(c_, l.up, x);
    return ggml_mul_mat(c_, l.down, ggml_swiglu_split(c_, gate, up));
  }

  DecoderGraph& g_;
  ggml_context* c_;
  const Hyperparameters& h_;
  const Weights& w_;
  AttentionPath& path_;
};

bool runs_all(ggml_backend_t backend, ggml_cgraph* graph) {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i)
    if (!ggml_backend_supports_op(backend, ggml_graph_node(graph, i))) return false;
  return true;
}

bool allocate(DecoderGraph& g, ggml_backend_t backend, std::size_t nodes, int threads) {
  if (is_cpu(ggml_backend_get_device(backend)) || runs_all(backend, g.graph)) {
    g.memory.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend)));
    return g.memory && ggml_gallocr_alloc_graph(g.memory.get(), g.graph);
  }
  g.host = make_backend(find_device("cpu"), threads);
  ggml_backend_t both[] = {backend, g.host.get()};
  g.schedule.reset(ggml_backend_sched_new(both, nullptr, 2, 2 * nodes, false, false));
  return g.schedule && ggml_backend_sched_alloc_graph(g.schedule.get(), g.graph);
}

}  // namespace

void build_graph(DecoderGraph& graph, const Model& model, AttentionPath& path, ggml_backend_t backend, int threads) {
  const std::size_t nodes =
      kNodesBeside + (kNodesPerLayer + path.nodes_per_layer()) * static_cast<std::size_t>(model.hyper().layers);
  graph.context.reset(
      ggml_init({2 * nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false), nullptr, true}));
  if (!graph.context) fail("no memory for a graph of {} nodes", nodes);
  graph.graph = ggml_new_graph_custom(graph.context.get(), nodes, false);
  Builder(graph, model, path).run();
  if (!allocate(graph, backend, nodes, threads))
    fail("no memory on device {} for a step of {} tokens; use a smaller --chunk", ggml_backend_name(backend),
         graph.tokens);
}

void run_graph(DecoderGraph& graph, ggml_backend_t backend) {
  const ggml_status status = graph.schedule ? ggml_backend_sched_graph_compute(graph.schedule.get(), graph.graph)
                                            : ggml_backend_graph_compute(backend, graph.graph);
  if (status != GGML_STATUS_SUCCESS)
    fail("device {} failed in a step of {} tokens ({})", ggml_backend_name(backend), graph.tokens,
         ggml_status_to_string(status));
}

}  // namespace palimpsest
