// Builds the graph of a step from the model's family and the tensors that are present. One class, in files by the part
// of the model; the functions return the result of the operators that they add. Internal: see graph.h.
#pragma once

#include <map>
#include <memory>

#include "palimpsest/graph/graph.h"
#include "palimpsest/model/family.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {

class GraphBuilder {
 public:
  GraphBuilder(DecoderGraph& graph, const Model& model, AttentionPath& path, Workers& pool)
      : g_(graph), c_(graph.context.get()), f_(model.family()), h_(model.hyper()), w_(model.weights()), path_(path) {
    g_.products = std::make_unique<ProductOps>(&pool);
  }

  void run();

 private:
  // Operators of all parts (graph_parts.cpp).
  ggml_tensor* norm(ggml_tensor* x, const NormWeights& weights);  // returns x if the model has no such norm
  ggml_tensor* plus(ggml_tensor* x, ggml_tensor* bias) { return bias == nullptr ? x : ggml_add(c_, x, bias); }
  ggml_tensor* linear(ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* x) { return plus(product(weight, x), bias); }
  ggml_tensor* product(ggml_tensor* weight, ggml_tensor* x);
  ggml_tensor* scaled(ggml_tensor* x, float factor) { return factor == 1 ? x : ggml_scale(c_, x, factor); }
  ggml_tensor* clamped(ggml_tensor* x) { return h_.clamp_qkv > 0 ? ggml_clamp(c_, x, -h_.clamp_qkv, h_.clamp_qkv) : x; }
  ggml_tensor* soft_capped(ggml_tensor* x, float cap);
  ggml_tensor* act(ggml_tensor* x, int layer = 0);
  // Without a gate: the activation alone. `limit`: Hyperparameters::gate_limits.
  ggml_tensor* gated(ggml_tensor* gate, ggml_tensor* up, float limit = 0);
  ggml_tensor* gated_halves(ggml_tensor* x, float limit = 0);  // the first half of each row is the gate
  float limit(const std::vector<float>& limits, const LayerWeights& l) const {
    return limits.empty() ? 0 : limits[at(static_cast<int>(&l - w_.layers.data()))];
  }
  ggml_tensor* columns(ggml_tensor* x, int count, int first);
  ggml_tensor* heads(ggml_tensor* x, int dim, int count, int first_row = 0);
  ggml_tensor* part(ggml_tensor* x, int width, int count, int row, int first);
  ggml_tensor* per_head(ggml_tensor* weight, ggml_tensor* x);

  // Layers (graph_layers.cpp).
  ggml_tensor* layer(int i, ggml_tensor* x);
  ggml_tensor* attention(int i, const LayerWeights& l, ggml_tensor* x);
  ggml_tensor* normed_heads(int i, ggml_tensor* x, const NormWeights& weights);
  ggml_tensor* query_temperature();  // [1, 1, tokens]
  ggml_tensor* latent_attention(int i, const LayerWeights& l, ggml_tensor* x);
  ggml_tensor* add_feed_forward(const LayerWeights& l, ggml_tensor* x);
  ggml_tensor* feed_forward(const LayerWeights& l, ggml_tensor* x);
  // Hyperparameters::per_layer.
  void make_own_embeddings(ggml_tensor* x);
  ggml_tensor* own_embedding(int i);  // [per_layer, tokens]
  ggml_tensor* of_own_embedding(const LayerWeights& l, ggml_tensor* x, ggml_tensor* own);
  ggml_tensor* layer_end(int i, ggml_tensor* x);

  // Layers with a recurrent state (graph_recurrent.cpp).
  ggml_tensor* recurrent(int i, const LayerWeights& l, ggml_tensor* x);
  ggml_tensor* mamba(int i, const LayerWeights& l, ggml_tensor* in);
  ggml_tensor* delta(int i, const LayerWeights& l, ggml_tensor* in);

  // Mixtures (graph_experts.cpp).
  struct Chosen {
    ggml_tensor* experts;  // i32 [used, tokens]
    ggml_tensor* weights;  // [1, used, tokens]
    ggml_tensor* scores;   // [experts, tokens]
  };
  struct ExpertMatrices {
    ggml_tensor *gate, *up, *down, *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
    bool gate_up_in_one = false;
    int count;        // of experts
    float limit = 0;  // as in gated()
  };
  ggml_tensor* shared_experts(const LayerWeights& l, ggml_tensor* x);
  Chosen route(const LayerWeights& l, ggml_tensor* x);
  ggml_tensor* in_best_groups(ggml_tensor* scores);
  ggml_tensor* experts(const LayerWeights& l, ggml_tensor* x);
  ggml_tensor* chosen_experts(const ExpertMatrices& m, ggml_tensor* x, const Chosen& of_token);
  ggml_tensor* adjugate_experts(const LayerWeights& l, ggml_tensor* x, const Chosen& of_token);

  // AltUp (graph_altup.cpp). The residual stream is [width, inputs, tokens].
  ggml_tensor* inputs_of(ggml_tensor* stream, int first, int count);
  ggml_tensor* first_input(ggml_tensor* stream);
  ggml_tensor* as_input(ggml_tensor* x) { return ggml_reshape_3d(c_, x, x->ne[0], 1, g_.tokens); }
  ggml_tensor* repeated(ggml_tensor* x, int inputs);
  ggml_tensor* as_long_as(ggml_tensor* x, ggml_tensor* like);
  ggml_tensor* alt_up_begin(ggml_tensor* x);
  ggml_tensor* alt_up_end(ggml_tensor* stream);
  ggml_tensor* alt_up_routes(const LayerWeights& l, ggml_tensor* x);  // [inputs, tokens]
  ggml_tensor* sparse(ggml_tensor* x);
  ggml_tensor* alt_up_layer(int i, ggml_tensor* stream);

  DecoderGraph& g_;
  ggml_context* c_;
  const Family& f_;
  const Hyperparameters& h_;
  const Weights& w_;
  AttentionPath& path_;
  struct KeysAndValues {
    ggml_tensor *k, *v;
  };
  std::map<int, KeysAndValues> shared_kv_;  // by layer, of layers whose cache others read
  ggml_tensor* per_layer_ = nullptr;        // [per_layer, layers, tokens]
  ggml_tensor* layer_input_ = nullptr;      // of the layer whose feed-forward is built
  ggml_tensor* residual_ = nullptr;         // what its feed-forward's norm reads
};

}  // namespace palimpsest
