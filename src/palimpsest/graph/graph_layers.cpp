// The layers: attention, feed-forward and what is between them.
#include "palimpsest/graph/graph_builder.h"

#include <cmath>

namespace palimpsest {

void GraphBuilder::run() {
  g_.embeddings = ggml_new_tensor_2d(c_, GGML_TYPE_F32, h_.width, g_.tokens);
  ggml_set_input(g_.embeddings);
  if (g_.rows < g_.tokens) {
    // Padded to whole cache lines: ggml aligns tensors to 32 bytes, so after an odd size all later results would
    // straddle two lines, which makes ggml's AMX kernels (they accumulate into the result) 1.5 times slower.
    constexpr std::int64_t kLine = 64 / sizeof(std::int32_t);
    g_.row_ids = ggml_new_tensor_1d(c_, GGML_TYPE_I32, (g_.rows + kLine - 1) / kLine * kLine);
    ggml_set_input(g_.row_ids);
  }
  ggml_tensor* x = g_.embeddings;
  if (g_.layers.first == 0) {
    x = norm(scaled(x, h_.embedding_scale), w_.embedding_norm);
  }
  if (h_.per_layer > 0) make_own_embeddings(x);
  if (h_.alt_up) x = alt_up_begin(x);
  for (int i = g_.layers.first; i < g_.layers.last; ++i) x = h_.alt_up ? alt_up_layer(i, x) : layer(i, x);
  if (h_.alt_up) x = alt_up_end(x);
  if (g_.layers.last == h_.layers) {
    x = norm(x, w_.output_norm);
    if (g_.result == StepResult::kLogits)
      x = soft_capped(scaled(linear(w_.output, w_.output_bias, x), h_.logit_scale), h_.output_soft_cap);
  }
  g_.logits = x;
  ggml_set_output(g_.logits);
  ggml_build_forward_expand(g_.graph, g_.logits);
}

ggml_tensor* GraphBuilder::layer(int i, ggml_tensor* x) {
  const LayerWeights& l = w_.layers[i];
  ggml_tensor* in = norm(x, l.attention_norm);
  if (in != x) {
    ggml_tensor* first = in;
    while (first->src[0] != x) first = first->src[0];
    g_.first_of_layer.emplace_back(first, i);
  }
  ggml_tensor* beside = h_.is_recurrent(i) && f_.recurrent_beside_attention ? recurrent(i, l, in) : nullptr;
  ggml_tensor* attn_out = attention(i, l, in);  // `in` itself for a layer without KV heads
  // After the last layer's attention, keep only the rows whose logits are requested.
  if (i + 1 == h_.layers && g_.row_ids != nullptr) {
    const bool one = in == x;
    ggml_tensor* ids = ggml_view_1d(c_, g_.row_ids, g_.rows, 0);
    attn_out = ggml_get_rows(c_, attn_out, ids);
    if (beside != nullptr) beside = ggml_get_rows(c_, beside, ids);
    x = ggml_get_rows(c_, x, ids);
    if (h_.parallel && !l.feed_forward_norm.exists()) in = one ? x : ggml_get_rows(c_, in, ids);
  }
  if (l.attention_output == nullptr) return layer_end(i, l.down == nullptr ? x : add_feed_forward(l, x));
  attn_out = norm(attn_out, l.attention_sub_norm);
  ggml_tensor* added = linear(l.attention_output, l.attention_bias, attn_out);
  added = norm(scaled(added, h_.attention_output_scale), l.post_attention_norm);
  if (beside != nullptr) added = ggml_add(c_, product(l.recurrent_out, beside), added);
  added = scaled(added, h_.residual_scale);
  if (h_.parallel) {
    ggml_tensor* to = l.feed_forward_norm.exists() ? norm(x, l.feed_forward_norm) : in;
    return ggml_add(c_, ggml_add(c_, scaled(feed_forward(l, to), h_.residual_scale), x), added);
  }
  layer_input_ = x;
  x = ggml_add(c_, added, x);
  return layer_end(i, l.down == nullptr ? x : add_feed_forward(l, x));
}

void GraphBuilder::make_own_embeddings(ggml_tensor* x) {
  g_.per_layer_inputs = ggml_new_tensor_2d(c_, GGML_TYPE_F32, std::int64_t{h_.per_layer} * h_.layers, g_.tokens);
  ggml_set_input(g_.per_layer_inputs);
  const auto by_layer = [&](ggml_tensor* all, float factor) {
    return ggml_reshape_3d(c_, ggml_scale(c_, all, factor), h_.per_layer, h_.layers, g_.tokens);
  };
  const auto width = static_cast<float>(h_.width), own = static_cast<float>(h_.per_layer);
  ggml_tensor* projected = norm(by_layer(product(w_.per_layer_projection, x), 1 / std::sqrt(width)), w_.per_layer_norm);
  per_layer_ = ggml_scale(c_, ggml_add(c_, projected, by_layer(g_.per_layer_inputs, std::sqrt(own))), std::sqrt(0.5F));
}

ggml_tensor* GraphBuilder::own_embedding(int i) {
  return ggml_cont(c_,
                   ggml_view_2d(c_, per_layer_, h_.per_layer, g_.tokens, per_layer_->nb[2], at(i) * per_layer_->nb[1]));
}

ggml_tensor* GraphBuilder::of_own_embedding(const LayerWeights& l, ggml_tensor* x, ggml_tensor* own) {
  return norm(product(l.per_layer_out, ggml_mul(c_, act(product(l.per_layer_gate, x)), own)), l.per_layer_norm);
}

// What follows the feed-forward.
ggml_tensor* GraphBuilder::layer_end(int i, ggml_tensor* x) {
  const LayerWeights& l = w_.layers[i];
  if (h_.per_layer > 0) {
    ggml_tensor* own = own_embedding(i);
    if (x->ne[1] < g_.tokens) own = ggml_get_rows(c_, own, ggml_view_1d(c_, g_.row_ids, g_.rows, 0));
    x = ggml_add(c_, of_own_embedding(l, x, own), x);
  }
  return l.layer_scale == nullptr ? x : ggml_mul(c_, x, l.layer_scale);
}

ggml_tensor* GraphBuilder::attention(int i, const LayerWeights& l, ggml_tensor* x) {
  const LayerGeometry& g = h_.geometry.layer(i);
  if (h_.is_recurrent(i) && !f_.recurrent_beside_attention) return recurrent(i, l, x);
  if (h_.kv_layer(i) != i) {
    const KeysAndValues& kv = shared_kv_.at(h_.kv_layer(i));
    return path_.build(g_, i, normed_heads(i, heads(product(l.q, x), g.key_width, g.query_heads), l.q_norm), kv.k,
                       kv.v);
  }
  if (g.kv_heads == 0) return x;
  if (h_.latent) return latent_attention(i, l, x);
  ggml_tensor *q = nullptr, *k = nullptr, *v = nullptr, *gate = nullptr;
  if (l.qkv != nullptr) {
    ggml_tensor* all = clamped(linear(l.qkv, l.qkv_bias, x));
    const int q_rows = g.query_heads * g.key_width, k_rows = g.kv_heads * g.key_width;
    q = heads(all, g.key_width, g.query_heads);
    k = heads(all, g.key_width, g.kv_heads, q_rows);
    v = heads(all, g.value_width, g.kv_heads, q_rows + k_rows);
  } else if (f_.gated_attention) {
    ggml_tensor* both = linear(l.q, l.q_bias, x);
    q = part(both, g.key_width, g.query_heads, 2 * g.key_width, 0);
    gate = ggml_cont(c_, part(both, g.key_width, g.query_heads, 2 * g.key_width, g.key_width));
    k = heads(linear(l.k, l.k_bias, x), g.key_width, g.kv_heads);
    v = heads(linear(l.v, l.v_bias, x), g.value_width, g.kv_heads);
  } else {
    q = heads(clamped(linear(l.q, l.q_bias, x)), g.key_width, g.query_heads);
    ggml_tensor* keys = clamped(linear(l.k, l.k_bias, x));
    k = heads(keys, g.key_width, g.kv_heads);
    v = heads(l.v == nullptr ? keys : clamped(linear(l.v, l.v_bias, x)), g.value_width, g.kv_heads);
  }
  q = normed_heads(i, q, l.q_norm);
  if (h_.has_query_temperature(i)) q = ggml_mul(c_, q, query_temperature());
  k = normed_heads(i, k, l.k_norm);
  if (f_.value_norm) v = ggml_rms_norm(c_, v, h_.norm_epsilon);
  if (!h_.kv_layers.empty()) shared_kv_[i] = {k, v};
  ggml_tensor* out = path_.build(g_, i, q, k, v);
  if (l.attention_gate != nullptr) gate = product(l.attention_gate, x);
  if (gate == nullptr) return out;
  if (f_.head_gates) {
    gate = ggml_reshape_3d(c_, gate, 1, g.query_heads, out->ne[1]);
    out = ggml_reshape_3d(c_, out, g.value_width, g.query_heads, out->ne[1]);
    out = ggml_mul(c_, out, ggml_sigmoid(c_, gate));
    return ggml_reshape_2d(c_, out, out->ne[0] * out->ne[1], out->ne[2]);
  }
  return ggml_mul(c_, out, ggml_sigmoid(c_, ggml_reshape_2d(c_, gate, out->ne[0], out->ne[1])));
}

ggml_tensor* GraphBuilder::normed_heads(int i, ggml_tensor* x, const NormWeights& weights) {
  const bool rotated = !h_.rope_table(h_.rope_of(i)).is_unrotated();
  if (f_.qk_norm == QkNorm::kAfterRotation || (f_.qk_norm == QkNorm::kUnweighted && h_.unweighted_qk_norm && rotated))
    return ggml_rms_norm(c_, x, h_.norm_epsilon);
  if (weights.weight != nullptr && f_.qk_norm == QkNorm::kPerHead && f_.norm == Norm::kRms) {
    constexpr float kEpsilon = 1e-5F;  // Chameleon: a LayerNorm, whose epsilon is not in the file
    return plus(ggml_mul(c_, ggml_norm(c_, x, kEpsilon), weights.weight), weights.bias);
  }
  if (weights.weight == nullptr || f_.qk_norm != QkNorm::kAllHeads) return norm(x, weights);
  ggml_tensor* row = ggml_reshape_2d(c_, ggml_cont(c_, x), x->ne[0] * x->ne[1], g_.tokens);
  return ggml_reshape_3d(c_, norm(row, weights), x->ne[0], x->ne[1], g_.tokens);
}

ggml_tensor* GraphBuilder::query_temperature() {  // [1, 1, tokens]
  if (g_.query_temperature == nullptr) {
    g_.query_temperature = ggml_new_tensor_3d(c_, GGML_TYPE_F32, 1, 1, g_.tokens);
    ggml_set_input(g_.query_temperature);
  }
  return g_.query_temperature;
}

// LatentAttention. The rotary part of queries and keys comes first: the file has it last.
ggml_tensor* GraphBuilder::latent_attention(int i, const LayerWeights& l, ggml_tensor* x) {
  const LatentAttention& a = h_.latent;
  const int rotary = h_.rope.dims, count = h_.geometry.layer(i).query_heads;
  ggml_tensor* from = l.query_latent == nullptr ? x : norm(product(l.query_latent, x), l.query_latent_norm);
  ggml_tensor* all_q = product(l.q, from);
  ggml_tensor* q_plain = part(all_q, a.key, count, a.key + rotary, 0);
  ggml_tensor* q_rotary = part(all_q, rotary, count, a.key + rotary, a.key);
  ggml_tensor* both = product(l.latent, x);
  ggml_tensor* k_rotary = part(both, rotary, 1, rotary, a.rank);
  ggml_tensor* latent = ggml_cont(c_, ggml_view_2d(c_, both, a.rank, g_.tokens, both->nb[1], 0));
  latent = norm(latent, l.latent_norm);
  if (a.absorbed) {
    ggml_tensor* v = ggml_reshape_3d(c_, latent, a.rank, 1, g_.tokens);
    ggml_tensor* q = ggml_concat(c_, q_rotary, per_head(l.absorbed_keys, q_plain), 0);
    if (h_.has_query_temperature(i)) q = ggml_mul(c_, q, query_temperature());
    ggml_tensor* mixed = path_.build(g_, i, q, ggml_concat(c_, k_rotary, v, 0), v);
    ggml_tensor* out = per_head(l.absorbed_values, ggml_reshape_3d(c_, mixed, a.rank, count, g_.tokens));
    return ggml_reshape_2d(c_, out, a.value * count, g_.tokens);
  }
  ggml_tensor* kv = product(l.keys_values, latent);
  ggml_tensor* shared = ggml_repeat_4d(c_, ggml_cont(c_, k_rotary), rotary, count, g_.tokens, 1);
  ggml_tensor* k = ggml_concat(c_, shared, part(kv, a.key, count, a.key + a.value, 0), 0);
  ggml_tensor* v = part(kv, a.value, count, a.key + a.value, a.key);
  ggml_tensor* q = ggml_concat(c_, q_rotary, q_plain, 0);
  if (h_.has_query_temperature(i)) q = ggml_mul(c_, q, query_temperature());
  return path_.build(g_, i, q, k, v);
}

ggml_tensor* GraphBuilder::add_feed_forward(const LayerWeights& l, ggml_tensor* x) {
  residual_ = x;
  ggml_tensor* out = norm(feed_forward(l, norm(x, l.feed_forward_norm)), l.post_feed_forward_norm);
  return ggml_add(c_, scaled(out, h_.residual_scale), x);
}

ggml_tensor* GraphBuilder::feed_forward(const LayerWeights& l, ggml_tensor* x) {
  if (l.router != nullptr && f_.normed_experts) {
    ggml_tensor* shared = norm(shared_experts(l, x), l.post_shared_norm);
    return ggml_add(c_, shared, norm(experts(l, norm(residual_, l.experts_norm)), l.post_experts_norm));
  }
  if (l.router != nullptr) {
    ggml_tensor* mixed = experts(l, f_.experts_of_layer_input ? norm(layer_input_, l.experts_norm) : x);
    if (l.latent_up != nullptr) mixed = product(l.latent_up, mixed);
    if (l.shared_up != nullptr) mixed = ggml_add(c_, mixed, shared_experts(l, x));
    return scaled(mixed, h_.mixture_scale);
  }
  ggml_tensor* up = linear(l.up, l.up_bias, x);
  if (f_.feed_forward == FeedForward::kGated) {
    up = gated(linear(l.gate, l.gate_bias, x), up, limit(h_.gate_limits, l));
  } else if (f_.feed_forward == FeedForward::kPackedGate) {
    up = gated_halves(up);
  } else {
    up = act(up, static_cast<int>(&l - w_.layers.data()));
  }
  return linear(l.down, l.down_bias, norm(up, l.feed_forward_sub_norm));
}

}  // namespace palimpsest
