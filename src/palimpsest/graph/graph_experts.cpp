// Mixtures of experts: routing, and products with the chosen experts.
#include "palimpsest/graph/graph_builder.h"

#include <cmath>

namespace palimpsest {

ggml_tensor* GraphBuilder::shared_experts(const LayerWeights& l, ggml_tensor* x) {
  ggml_tensor* gate = l.shared_gate == nullptr ? nullptr : product(l.shared_gate, x);
  ggml_tensor* out = product(l.shared_down, gated(gate, product(l.shared_up, x), limit(h_.gate_limits, l)));
  return l.shared_router == nullptr ? out : ggml_mul(c_, out, ggml_sigmoid(c_, product(l.shared_router, x)));
}

// Routes each token to the top-k experts.
GraphBuilder::Chosen GraphBuilder::route(const LayerWeights& l, ggml_tensor* x) {
  const std::int64_t tokens = x->ne[1], used = h_.experts_used;
  if (f_.router_of_layer_input) x = layer_input_;
  if (f_.normed_experts) {
    const float factor = 1 / std::sqrt(static_cast<float>(h_.width));
    x = ggml_mul(c_, ggml_scale(c_, ggml_rms_norm(c_, residual_, h_.norm_epsilon), factor), l.router_scale);
  }
  ggml_tensor* scores = linear(l.router, l.router_bias, x);  // [experts, tokens]
  if (h_.routing == Routing::kSoftmax) scores = ggml_soft_max(c_, scores);
  if (h_.routing == Routing::kSigmoid) scores = ggml_sigmoid(c_, scores);
  ggml_tensor* chosen = ggml_argsort_top_k(c_, in_best_groups(plus(scores, l.selection_bias)), h_.experts_used);
  ggml_tensor* weights = ggml_get_rows(c_, ggml_reshape_3d(c_, scores, 1, h_.experts, tokens), chosen);
  weights = ggml_reshape_2d(c_, weights, used, tokens);
  if (h_.routing == Routing::kSoftmaxOfChosen) weights = ggml_soft_max(c_, weights);
  if (h_.normalize_experts) weights = ggml_div(c_, weights, ggml_sum_rows(c_, weights));
  weights = ggml_reshape_3d(c_, scaled(weights, h_.expert_scale), 1, used, tokens);
  if (l.expert_scales != nullptr) {
    ggml_tensor* scales =
        ggml_repeat_4d(c_, ggml_reshape_2d(c_, l.expert_scales, 1, h_.experts), 1, h_.experts, tokens, 1);
    weights = ggml_mul(c_, weights, ggml_get_rows(c_, scales, chosen));
  }
  return {chosen, weights, scores};
}

// Scores [experts, tokens]; -infinity outside the groups whose two best experts have the highest sums (DeepSeek-V3,
// arXiv 2412.19437, section 2.1.2).
ggml_tensor* GraphBuilder::in_best_groups(ggml_tensor* scores) {
  if (h_.expert_groups == 1) return scores;
  const std::int64_t tokens = scores->ne[1], groups = h_.expert_groups, size = h_.experts / groups;
  ggml_tensor* grouped = ggml_reshape_3d(c_, scores, size, groups, tokens);
  ggml_tensor* best = ggml_get_rows(c_, ggml_reshape_4d(c_, scores, 1, size, groups, tokens),
                                    ggml_argsort_top_k(c_, grouped, 2));  // [1, 2, groups, tokens]
  ggml_tensor* sums = ggml_sum_rows(c_, ggml_reshape_3d(c_, best, 2, groups, tokens));
  ggml_tensor* ids = ggml_argsort_top_k(c_, ggml_reshape_2d(c_, sums, groups, tokens), h_.expert_groups_used);
  ggml_tensor* none = ggml_fill(c_, grouped, -INFINITY);
  return ggml_reshape_2d(c_, ggml_set_rows(c_, none, ggml_get_rows(c_, grouped, ids), ids), h_.experts, tokens);
}

ggml_tensor* GraphBuilder::experts(const LayerWeights& l, ggml_tensor* x) {
  const std::int64_t tokens = x->ne[1];
  Chosen of_token = route(l, x);
  if (l.latent_down != nullptr) x = product(l.latent_down, x);
  if (f_.experts_of_scaled) {
    x = ggml_mul(c_, x, ggml_reshape_2d(c_, of_token.weights, 1, tokens));
    of_token.weights = ggml_fill(c_, of_token.weights, 1);
  }
  ggml_tensor* mixed = chosen_experts({.gate = l.gate,
                                       .up = l.up,
                                       .down = l.down,
                                       .gate_bias = l.gate_bias,
                                       .up_bias = l.up_bias,
                                       .down_bias = l.down_bias,
                                       .gate_up_in_one = h_.gate_up_in_one,
                                       .count = h_.experts,
                                       .limit = limit(h_.expert_limits, l)},
                                      x, of_token);
  if (l.adjugate_up == nullptr) return mixed;
  return ggml_add(c_, mixed, scaled(adjugate_experts(l, mixed, of_token), h_.adjugate_scale));
}

// The experts of the chosen experts' groups; two of one group count twice. As in libllama (llama.cpp,
// src/llama-graph.cpp, build_moe_ffn), group g has the score of expert g.
ggml_tensor* GraphBuilder::adjugate_experts(const LayerWeights& l, ggml_tensor* x, const Chosen& of_token) {
  const int groups = h_.experts / h_.adjugate_group;
  const std::int64_t tokens = x->ne[1], used = h_.experts_used;
  const float size = static_cast<float>(h_.adjugate_group);
  ggml_tensor* in_groups = ggml_scale_bias(c_, ggml_cast(c_, of_token.experts, GGML_TYPE_F32), 1 / size, 0.5F / size);
  ggml_tensor* chosen = ggml_cast(c_, in_groups, GGML_TYPE_I32);  // rounds down
  ggml_tensor* weights = ggml_get_rows(c_, ggml_reshape_3d(c_, of_token.scores, 1, h_.experts, tokens), chosen);
  weights = ggml_reshape_2d(c_, weights, used, tokens);
  // Groups need not have high scores: a least sum, as in libllama.
  weights = ggml_div(c_, weights, ggml_clamp(c_, ggml_sum_rows(c_, weights), 0x1p-14F, INFINITY));
  return chosen_experts({.gate = l.adjugate_gate, .up = l.adjugate_up, .down = l.adjugate_down, .count = groups}, x,
                        {chosen, ggml_reshape_3d(c_, weights, 1, used, tokens), nullptr});
}

ggml_tensor* GraphBuilder::chosen_experts(const ExpertMatrices& m, ggml_tensor* x, const Chosen& of_token) {
  ggml_tensor *chosen = of_token.experts, *weights = of_token.weights;
  const std::int64_t tokens = x->ne[1], used = chosen->ne[0];
  const Panels *up_panels = w_.panels_of(m.up), *gate_panels = w_.panels_of(m.gate),
               *down_panels = w_.panels_of(m.down);
  if (up_panels != nullptr) {  // then all of them are
    ProductOps& products = *g_.products;
    const ExpertOrder order = products.order(c_, chosen, m.count);
    const auto biased = [&](ggml_tensor* rows, ggml_tensor* bias) {
      return bias == nullptr ? rows : products.add_expert_bias(c_, rows, bias, order);
    };
    ggml_tensor* up = biased(products.multiply_experts(c_, *up_panels, x, order), m.up_bias);
    ggml_tensor* gate =
        gate_panels == nullptr ? nullptr : biased(products.multiply_experts(c_, *gate_panels, x, order), m.gate_bias);
    ggml_tensor* in = m.gate_up_in_one ? gated_halves(up, m.limit) : gated(gate, up, m.limit);
    ggml_tensor* down = biased(products.multiply_sorted(c_, *down_panels, in, order), m.down_bias);
    return products.combine(c_, down, weights, order);
  }
  const auto each = [&](ggml_tensor* weight, ggml_tensor* bias,
                        ggml_tensor* in) {  // [own, used, tokens]
    ggml_tensor* out = ggml_mul_mat_id(c_, weight, in, chosen);
    return bias == nullptr ? out : ggml_add_id(c_, out, bias, chosen);
  };
  ggml_tensor* in = ggml_reshape_3d(c_, x, x->ne[0], 1, tokens);
  ggml_tensor* up = each(m.up, m.up_bias, in);
  ggml_tensor* gate = m.gate == nullptr ? nullptr : each(m.gate, m.gate_bias, in);
  up = m.gate_up_in_one ? gated_halves(up, m.limit) : gated(gate, up, m.limit);
  ggml_tensor* out = ggml_mul(c_, each(m.down, m.down_bias, up), weights);
  ggml_tensor* sum = nullptr;
  for (std::int64_t i = 0; i < used; ++i) {
    ggml_tensor* one = ggml_view_2d(c_, out, out->ne[0], tokens, out->nb[2], static_cast<std::size_t>(i) * out->nb[1]);
    sum = sum == nullptr ? (used == 1 ? ggml_cont(c_, one) : one) : ggml_add(c_, sum, one);
  }
  return sum;
}

}  // namespace palimpsest
