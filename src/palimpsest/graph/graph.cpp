#include "palimpsest/graph/graph.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "palimpsest/core/error.h"
#include "palimpsest/model/backend.h"
#include "palimpsest/model/family.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {

namespace {

constexpr std::size_t kNodesPerLayer = 128 + 16 * ProductOps::kNodes,
                      kNodesBeside = 64;  // excluding those of the path and of experts

class Builder {
 public:
  Builder(DecoderGraph& graph, const Model& model, AttentionPath& path, Workers& pool)
      : g_(graph), c_(graph.context.get()), f_(model.family()), h_(model.hyper()), w_(model.weights()), path_(path) {
    g_.products = std::make_unique<ProductOps>(&pool);
  }

  void run() {
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

 private:
  ggml_tensor* norm(ggml_tensor* x, const NormWeights& weights) {  // returns x if the model has no such norm
    if (weights.weight == nullptr) return x;
    ggml_tensor* normed =
        f_.norm == Norm::kRms ? ggml_rms_norm(c_, x, h_.norm_epsilon) : ggml_norm(c_, x, h_.norm_epsilon);
    return plus(ggml_mul(c_, normed, weights.weight), weights.bias);
  }
  ggml_tensor* plus(ggml_tensor* x, ggml_tensor* bias) { return bias == nullptr ? x : ggml_add(c_, x, bias); }
  ggml_tensor* linear(ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* x) { return plus(product(weight, x), bias); }
  ggml_tensor* product(ggml_tensor* weight, ggml_tensor* x) {
    if (const Panels* const panels = w_.panels_of(weight)) return g_.products->multiply(c_, *panels, x);
    if (!g_.rows_alone) return ggml_mul_mat(c_, weight, x);
    // ggml chooses kernels by the number of rows, and multiplies the matrices of a batch each on its own: here, rows.
    ggml_tensor* rows = ggml_mul_mat(c_, weight, ggml_reshape_3d(c_, x, x->ne[0], 1, x->ne[1]));
    return ggml_reshape_2d(c_, rows, rows->ne[0], rows->ne[2]);
  }
  ggml_tensor* scaled(ggml_tensor* x, float factor) { return factor == 1 ? x : ggml_scale(c_, x, factor); }
  ggml_tensor* clamped(ggml_tensor* x) { return h_.clamp_qkv > 0 ? ggml_clamp(c_, x, -h_.clamp_qkv, h_.clamp_qkv) : x; }
  ggml_tensor* soft_capped(ggml_tensor* x, float cap) {
    return cap > 0 ? ggml_scale(c_, ggml_tanh(c_, ggml_scale(c_, x, 1 / cap)), cap) : x;
  }
  ggml_tensor* act(ggml_tensor* x) {
    switch (f_.activation) {
      case Activation::kSilu:
        return ggml_silu(c_, x);
      case Activation::kGelu:
        return ggml_gelu(c_, x);
      case Activation::kRelu:
        return ggml_relu(c_, x);
      case Activation::kReluSquared:
        return ggml_sqr(c_, ggml_relu(c_, x));
      case Activation::kClampedSwiglu:  // only gated
        break;
    }
    return x;
  }
  ggml_tensor* gated(ggml_tensor* gate, ggml_tensor* up) {  // without a gate: the activation alone
    if (gate == nullptr) return act(up);
    if (f_.activation == Activation::kSilu) return ggml_swiglu_split(c_, gate, up);
    if (f_.activation == Activation::kGelu) return ggml_geglu_split(c_, gate, up);
    if (f_.activation == Activation::kClampedSwiglu) return ggml_swiglu_oai(c_, gate, up, 1.702F, 7.0F);
    return ggml_reglu_split(c_, gate, up);
  }
  // A view of `count` results of a product: [count, tokens].
  ggml_tensor* columns(ggml_tensor* x, int count, int first) {
    return ggml_view_2d(c_, x, count, g_.tokens, x->nb[1], at(first) * sizeof(float));
  }
  // A view of some rows of a product as heads: [dim, heads, tokens].
  ggml_tensor* heads(ggml_tensor* x, int dim, int count, int first_row = 0) {
    return ggml_view_3d(c_, x, dim, count, g_.tokens, dim * sizeof(float), x->nb[1], first_row * sizeof(float));
  }
  // The same, of `width` from `first` on of each head's `row` numbers.
  ggml_tensor* part(ggml_tensor* x, int width, int count, int row, int first) {
    return ggml_view_3d(c_, x, width, count, g_.tokens, row * sizeof(float), x->nb[1], first * sizeof(float));
  }
  ggml_tensor* normed_heads(int i, ggml_tensor* x, const NormWeights& weights) {
    const bool rotated = !h_.rope_table(h_.rope_of(i)).is_unrotated();
    if (f_.qk_norm == QkNorm::kAfterRotation || (f_.qk_norm == QkNorm::kUnweighted && h_.unweighted_qk_norm && rotated))
      return ggml_rms_norm(c_, x, h_.norm_epsilon);
    if (weights.weight == nullptr || f_.qk_norm != QkNorm::kAllHeads) return norm(x, weights);
    ggml_tensor* row = ggml_reshape_2d(c_, ggml_cont(c_, x), x->ne[0] * x->ne[1], g_.tokens);
    return ggml_reshape_3d(c_, norm(row, weights), x->ne[0], x->ne[1], g_.tokens);
  }

  ggml_tensor* attention(int i, const LayerWeights& l, ggml_tensor* x) {
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
      k = heads(clamped(linear(l.k, l.k_bias, x)), g.key_width, g.kv_heads);
      v = heads(clamped(linear(l.v, l.v_bias, x)), g.value_width, g.kv_heads);
    }
    q = normed_heads(i, q, l.q_norm);
    if (h_.has_query_temperature(i)) q = ggml_mul(c_, q, query_temperature());
    k = normed_heads(i, k, l.k_norm);
    if (f_.value_norm) v = ggml_rms_norm(c_, v, h_.norm_epsilon);
    if (!h_.kv_layers.empty()) shared_kv_[i] = {k, v};
    ggml_tensor* out = path_.build(g_, i, q, k, v);
    if (gate == nullptr) return out;
    return ggml_mul(c_, out, ggml_sigmoid(c_, ggml_reshape_2d(c_, gate, out->ne[0], out->ne[1])));
  }

  ggml_tensor* query_temperature() {  // [1, 1, tokens]
    if (g_.query_temperature == nullptr) {
      g_.query_temperature = ggml_new_tensor_3d(c_, GGML_TYPE_F32, 1, 1, g_.tokens);
      ggml_set_input(g_.query_temperature);
    }
    return g_.query_temperature;
  }

  // A product of each head's row with the head's matrix: [in, out, heads] x [in, heads, tokens] -> [out, heads,
  // tokens].
  ggml_tensor* per_head(ggml_tensor* weight, ggml_tensor* x) {
    const std::int64_t in = x->ne[0], count = x->ne[1], tokens = x->ne[2], out = weight->ne[1];
    if (tokens == 1 || g_.rows_alone) {  // a row alone has the same bits in any step
      ggml_tensor* rows = ggml_reshape_4d(c_, ggml_cont(c_, x), in, 1, count, tokens);
      return ggml_reshape_3d(c_, ggml_mul_mat(c_, weight, rows), out, count, tokens);
    }
    ggml_tensor* by_head = ggml_cont(c_, ggml_permute(c_, x, 0, 2, 1, 3));
    return ggml_cont(c_, ggml_permute(c_, ggml_mul_mat(c_, weight, by_head), 0, 2, 1, 3));
  }

  // Recurrence, without the last product.
  ggml_tensor* recurrent(int i, const LayerWeights& l, ggml_tensor* x) {
    if (f_.recurrence == Recurrence::kMamba2) return mamba(i, l, x);
    if (f_.recurrence == Recurrence::kDelta) return delta(i, l, x);
    ggml_tensor* all = product(l.recurrent_in, x);  // [3 width, tokens]
    const auto third = [&](int n) { return columns(all, h_.width, n * h_.width); };
    return ggml_mul(c_, third(1), path_.convolve(g_, i, ggml_mul(c_, third(0), third(2)), l.convolution));
  }

  ggml_tensor* mamba(int i, const LayerWeights& l, ggml_tensor* in) {
    const LayerState& s = h_.states[at(i)];
    const StateHeads& m = s.state_heads;
    const int inner = m.heads * m.head_dim;
    ggml_tensor* all = product(l.recurrent_in, in);  // z, channels, t
    ggml_tensor* mixed = path_.convolve(g_, i, columns(all, s.channels, inner), l.convolution);
    mixed = ggml_silu(c_, ggml_add(c_, mixed, l.convolution_bias));
    ggml_tensor* time = ggml_add(c_, ggml_cont(c_, columns(all, m.heads, inner + s.channels)), l.time_bias);
    ggml_tensor* x = heads(mixed, m.head_dim, m.heads);
    ggml_tensor* b = heads(mixed, m.state_width, m.groups, inner);
    ggml_tensor* c = heads(mixed, m.state_width, m.groups, inner + m.groups * m.state_width);
    ggml_tensor* y = ggml_reshape_3d(c_, path_.scan(g_, i, {x, time, l.decay, b, c}), m.head_dim, m.heads, g_.tokens);
    y = ggml_add(c_, y, ggml_mul(c_, x, l.skip));
    y = ggml_swiglu_split(c_, ggml_cont(c_, columns(all, inner, 0)), ggml_reshape_2d(c_, y, inner, g_.tokens));
    y = norm(ggml_reshape_3d(c_, y, inner / m.groups, m.groups, g_.tokens), l.gated_norm);
    return ggml_reshape_2d(c_, y, inner, g_.tokens);
  }

  ggml_tensor* delta(int i, const LayerWeights& l, ggml_tensor* in) {
    const LayerState& s = h_.states[at(i)];
    const StateHeads& m = s.state_heads;
    const int keys = m.groups * m.state_width;
    ggml_tensor *channels = product(l.recurrent_in, in), *gate = nullptr;
    if (h_.delta_in_one) {  // a group's q, k, v, z
      const int values = m.head_dim * (m.heads / m.groups), row = 2 * m.state_width + 2 * values;
      const auto rows = [&, all = channels](int width, int first) {
        return ggml_reshape_2d(c_, ggml_cont(c_, part(all, width, m.groups, row, first)), width * m.groups, g_.tokens);
      };
      gate = rows(values, 2 * m.state_width + values);
      channels = ggml_concat(c_, ggml_concat(c_, rows(m.state_width, 0), rows(m.state_width, m.state_width), 0),
                             rows(values, 2 * m.state_width), 0);
    }
    ggml_tensor* mixed = ggml_silu(c_, path_.convolve(g_, i, channels, l.convolution));
    ggml_tensor* q = ggml_l2_norm(c_, heads(mixed, m.state_width, m.groups), h_.norm_epsilon);
    ggml_tensor* k = ggml_l2_norm(c_, heads(mixed, m.state_width, m.groups, keys), h_.norm_epsilon);
    ggml_tensor* v = heads(mixed, m.head_dim, m.heads, 2 * keys);
    ggml_tensor *beta = nullptr, *time = nullptr;
    if (l.beta_time == nullptr) {
      beta = product(l.beta, in);
      time = product(l.time, in);
    } else {
      ggml_tensor* both = product(l.beta_time, in);
      const int each = m.heads / m.groups;
      const auto half = [&](int n) {
        return ggml_reshape_2d(c_, ggml_cont(c_, part(both, each, m.groups, 2 * each, n * each)), m.heads, g_.tokens);
      };
      beta = half(0);
      time = half(1);
    }
    const float scale = 1 / std::sqrt(static_cast<float>(m.state_width));
    ggml_tensor* y = path_.scan(g_, i,
                                {.x = v,
                                 .time = ggml_add(c_, time, l.time_bias),
                                 .decay = ggml_reshape_2d(c_, l.decay, 1, m.heads),
                                 .b = k,
                                 .c = ggml_scale(c_, q, scale),
                                 .beta = ggml_sigmoid(c_, beta)});
    y = norm(ggml_reshape_3d(c_, y, m.head_dim, m.heads, g_.tokens), l.gated_norm);
    if (gate == nullptr) gate = product(l.recurrent_gate, in);
    return ggml_swiglu_split(c_, gate, ggml_reshape_2d(c_, y, gate->ne[0], g_.tokens));
  }

  // LatentAttention. The rotary part of queries and keys comes first: the file has it last.
  ggml_tensor* latent_attention(int i, const LayerWeights& l, ggml_tensor* x) {
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
      ggml_tensor* mixed = path_.build(g_, i, q, ggml_concat(c_, k_rotary, v, 0), v);
      ggml_tensor* out = per_head(l.absorbed_values, ggml_reshape_3d(c_, mixed, a.rank, count, g_.tokens));
      return ggml_reshape_2d(c_, out, a.value * count, g_.tokens);
    }
    ggml_tensor* kv = product(l.keys_values, latent);
    ggml_tensor* shared = ggml_repeat_4d(c_, ggml_cont(c_, k_rotary), rotary, count, g_.tokens, 1);
    ggml_tensor* k = ggml_concat(c_, shared, part(kv, a.key, count, a.key + a.value, 0), 0);
    ggml_tensor* v = part(kv, a.value, count, a.key + a.value, a.key);
    return path_.build(g_, i, ggml_concat(c_, q_rotary, q_plain, 0), k, v);
  }

  ggml_tensor* layer(int i, ggml_tensor* x) {
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
      if (h_.parallel && l.feed_forward_norm.weight == nullptr) in = one ? x : ggml_get_rows(c_, in, ids);
    }
    if (l.attention_output == nullptr) return l.down == nullptr ? x : add_feed_forward(l, x);
    ggml_tensor* added = norm(linear(l.attention_output, l.attention_bias, attn_out), l.post_attention_norm);
    if (beside != nullptr) added = ggml_add(c_, product(l.recurrent_out, beside), added);
    added = scaled(added, h_.residual_scale);
    if (h_.parallel) {
      ggml_tensor* to = l.feed_forward_norm.weight == nullptr ? in : norm(x, l.feed_forward_norm);
      return ggml_add(c_, ggml_add(c_, scaled(feed_forward(l, to), h_.residual_scale), x), added);
    }
    x = ggml_add(c_, added, x);
    return l.down == nullptr ? x : add_feed_forward(l, x);
  }

  // AltUp. The residual stream is [width, inputs, tokens].
  ggml_tensor* inputs_of(ggml_tensor* stream, int first, int count) {
    return ggml_cont(c_, ggml_view_3d(c_, stream, h_.width, count, g_.tokens, stream->nb[1], stream->nb[2],
                                      at(first) * stream->nb[1]));
  }
  ggml_tensor* first_input(ggml_tensor* stream) {
    return ggml_reshape_2d(c_, inputs_of(stream, 0, 1), h_.width, g_.tokens);
  }
  ggml_tensor* as_input(ggml_tensor* x) { return ggml_reshape_3d(c_, x, x->ne[0], 1, g_.tokens); }
  ggml_tensor* repeated(ggml_tensor* x, int inputs) {
    return ggml_repeat_4d(c_, as_input(x), h_.width, inputs, g_.tokens, 1);
  }
  ggml_tensor* as_long_as(ggml_tensor* x, ggml_tensor* like) {
    const auto length = [&](ggml_tensor* y) { return ggml_sqrt(c_, ggml_sum_rows(c_, ggml_sqr(c_, y))); };
    return ggml_div(c_, ggml_mul(c_, x, length(like)), length(x));
  }

  ggml_tensor* alt_up_begin(ggml_tensor* x) {
    const AltUp& a = h_.alt_up;
    g_.per_layer_inputs = ggml_new_tensor_2d(c_, GGML_TYPE_F32, std::int64_t{a.per_layer} * h_.layers, g_.tokens);
    ggml_set_input(g_.per_layer_inputs);
    const auto by_layer = [&](ggml_tensor* all, float factor) {
      return ggml_reshape_3d(c_, ggml_scale(c_, all, factor), a.per_layer, h_.layers, g_.tokens);
    };
    const auto width = static_cast<float>(h_.width), own = static_cast<float>(a.per_layer);
    ggml_tensor* projected =
        norm(by_layer(product(w_.per_layer_projection, x), 1 / std::sqrt(width)), w_.per_layer_norm);
    per_layer_ =
        ggml_scale(c_, ggml_add(c_, projected, by_layer(g_.per_layer_inputs, std::sqrt(own))), std::sqrt(0.5F));
    return ggml_concat(c_, as_input(x), as_long_as(per_head(w_.altup_in, repeated(x, a.inputs - 1)), as_input(x)), 1);
  }

  ggml_tensor* alt_up_end(ggml_tensor* stream) {
    const int inputs = h_.alt_up.inputs;
    ggml_tensor* first = inputs_of(stream, 0, 1);
    ggml_tensor* others = as_long_as(per_head(w_.altup_out, inputs_of(stream, 1, inputs - 1)), first);
    ggml_tensor* sum = first_input(stream);
    for (int i = 0; i + 1 < inputs; ++i)
      sum = ggml_add(c_, sum, ggml_reshape_2d(c_, inputs_of(others, i, 1), h_.width, g_.tokens));
    sum = ggml_scale(c_, sum, 1 / static_cast<float>(inputs));
    return g_.row_ids == nullptr ? sum : ggml_get_rows(c_, sum, ggml_view_1d(c_, g_.row_ids, g_.rows, 0));
  }

  ggml_tensor* alt_up_routes(const LayerWeights& l, ggml_tensor* x) {  // [inputs, tokens]
    ggml_tensor* in = ggml_scale(c_, norm(x, l.altup_norm), 1 / static_cast<float>(h_.width));
    return ggml_tanh(c_, product(l.altup_router, in));
  }

  // Values below mean + sparsity * deviation of their row become 0; the others are what exceeds it.
  ggml_tensor* sparse(ggml_tensor* x) {
    ggml_tensor* mean = ggml_mean(c_, x);
    ggml_tensor* squares = ggml_sum_rows(c_, ggml_sqr(c_, ggml_sub(c_, x, mean)));
    ggml_tensor* deviation = ggml_sqrt(c_, ggml_scale(c_, squares, 1 / static_cast<float>(x->ne[0] - 1)));
    return ggml_relu(c_, ggml_sub(c_, x, ggml_add(c_, mean, ggml_scale(c_, deviation, h_.alt_up.sparsity))));
  }

  ggml_tensor* alt_up_layer(int i, ggml_tensor* stream) {
    const LayerWeights& l = w_.layers[i];
    const AltUp& a = h_.alt_up;
    const float half = std::sqrt(0.5F);
    ggml_tensor* factors = product(l.altup_predict, alt_up_routes(l, first_input(stream)));
    ggml_tensor* by_dimension = ggml_cont(c_, ggml_permute(c_, stream, 1, 0, 2, 3));  // [inputs, width, tokens]
    stream = ggml_add(c_, ggml_mul_mat(c_, by_dimension, ggml_reshape_3d(c_, factors, a.inputs, a.inputs, g_.tokens)),
                      stream);
    ggml_tensor* predicted = first_input(stream);

    ggml_tensor* in = norm(predicted, l.attention_norm);
    ggml_tensor* laurel = ggml_add(c_, norm(product(l.laurel_out, product(l.laurel_in, in)), l.laurel_norm), in);
    ggml_tensor* attended = norm(product(l.attention_output, attention(i, l, in)), l.post_attention_norm);
    ggml_tensor* x = ggml_scale(c_, ggml_add(c_, ggml_add(c_, attended, predicted), laurel), half);
    in = norm(x, l.feed_forward_norm);
    ggml_tensor* gate = product(l.gate, in);
    ggml_tensor* out = product(l.down, gated(i < a.sparse_layers ? sparse(gate) : gate, product(l.up, in)));
    x = ggml_add(c_, norm(out, l.post_feed_forward_norm), x);

    factors = ggml_scale_bias(c_, product(l.altup_correct, alt_up_routes(l, x)), 1, 1);
    ggml_tensor* change = repeated(ggml_sub(c_, x, predicted), a.inputs);
    stream = ggml_add(c_, ggml_mul(c_, change, ggml_reshape_3d(c_, factors, 1, a.inputs, g_.tokens)), stream);

    // The layer's own embedding, to all inputs but the first.
    ggml_tensor* own =
        ggml_view_2d(c_, per_layer_, a.per_layer, g_.tokens, per_layer_->nb[2], at(i) * per_layer_->nb[1]);
    x = act(product(l.per_layer_gate, ggml_mul(c_, first_input(stream), l.altup_scale)));
    x = norm(product(l.per_layer_out, ggml_mul(c_, x, ggml_cont(c_, own))), l.per_layer_norm);
    return ggml_concat(c_, inputs_of(stream, 0, 1), ggml_add(c_, inputs_of(stream, 1, a.inputs - 1), as_input(x)), 1);
  }

  ggml_tensor* add_feed_forward(const LayerWeights& l, ggml_tensor* x) {
    ggml_tensor* out = norm(feed_forward(l, norm(x, l.feed_forward_norm)), l.post_feed_forward_norm);
    return ggml_add(c_, scaled(out, h_.residual_scale), x);
  }

  ggml_tensor* feed_forward(const LayerWeights& l, ggml_tensor* x) {
    if (l.router != nullptr) {
      ggml_tensor* mixed = experts(l, x);
      if (l.latent_up != nullptr) mixed = product(l.latent_up, mixed);
      return l.shared_up == nullptr ? mixed : ggml_add(c_, mixed, shared_experts(l, x));
    }
    ggml_tensor* up = linear(l.up, l.up_bias, x);
    if (f_.feed_forward == FeedForward::kGated) {
      up = gated(linear(l.gate, l.gate_bias, x), up);
    } else if (f_.feed_forward == FeedForward::kPackedGate) {
      up = f_.activation == Activation::kSilu   ? ggml_swiglu(c_, up)
           : f_.activation == Activation::kGelu ? ggml_geglu(c_, up)
                                                : ggml_reglu(c_, up);
    } else {
      up = act(up);
    }
    return linear(l.down, l.down_bias, up);
  }

  ggml_tensor* shared_experts(const LayerWeights& l, ggml_tensor* x) {
    ggml_tensor* gate = l.shared_gate == nullptr ? nullptr : product(l.shared_gate, x);
    ggml_tensor* out = product(l.shared_down, gated(gate, product(l.shared_up, x)));
    return l.shared_router == nullptr ? out : ggml_mul(c_, out, ggml_sigmoid(c_, product(l.shared_router, x)));
  }

  struct Chosen {
    ggml_tensor* experts;  // i32 [used, tokens]
    ggml_tensor* weights;  // [1, used, tokens]
  };
  // Routes each token to the top-k experts.
  Chosen route(const LayerWeights& l, ggml_tensor* x) {
    const std::int64_t tokens = x->ne[1], used = h_.experts_used;
    ggml_tensor* scores = linear(l.router, l.router_bias, x);  // [experts, tokens]
    if (h_.routing == Routing::kSoftmax) scores = ggml_soft_max(c_, scores);
    if (h_.routing == Routing::kSigmoid) scores = ggml_sigmoid(c_, scores);
    ggml_tensor* chosen = ggml_argsort_top_k(c_, in_best_groups(plus(scores, l.selection_bias)), h_.experts_used);
    ggml_tensor* weights = ggml_get_rows(c_, ggml_reshape_3d(c_, scores, 1, h_.experts, tokens), chosen);
    weights = ggml_reshape_2d(c_, weights, used, tokens);
    if (h_.routing == Routing::kSoftmaxOfChosen) weights = ggml_soft_max(c_, weights);
    if (h_.normalize_experts) weights = ggml_div(c_, weights, ggml_sum_rows(c_, weights));
    return {chosen, ggml_reshape_3d(c_, scaled(weights, h_.expert_scale), 1, used, tokens)};
  }

  // Scores [experts, tokens]; -infinity outside the groups whose two best experts have the highest sums (DeepSeek-V3,
  // arXiv 2412.19437, section 2.1.2).
  ggml_tensor* in_best_groups(ggml_tensor* scores) {
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

  ggml_tensor* experts(const LayerWeights& l, ggml_tensor* x) {
    const std::int64_t tokens = x->ne[1], used = h_.experts_used;
    auto [chosen, weights] = route(l, x);
    if (l.latent_down != nullptr) x = product(l.latent_down, x);
    if (f_.experts_of_scaled) {
      x = ggml_mul(c_, x, ggml_reshape_2d(c_, weights, 1, tokens));
      weights = ggml_fill(c_, weights, 1);
    }
    const Panels *up_panels = w_.panels_of(l.up), *gate_panels = w_.panels_of(l.gate),
                 *down_panels = w_.panels_of(l.down);
    if (up_panels != nullptr) {  // then all of them are
      ProductOps& products = *g_.products;
      const ExpertOrder order = products.order(c_, chosen, h_.experts);
      const auto biased = [&](ggml_tensor* rows, ggml_tensor* bias) {
        return bias == nullptr ? rows : products.add_expert_bias(c_, rows, bias, order);
      };
      ggml_tensor* up = biased(products.multiply_experts(c_, *up_panels, x, order), l.up_bias);
      ggml_tensor* gate =
          gate_panels == nullptr ? nullptr : biased(products.multiply_experts(c_, *gate_panels, x, order), l.gate_bias);
      ggml_tensor* down = biased(products.multiply_sorted(c_, *down_panels, gated(gate, up), order), l.down_bias);
      return products.combine(c_, down, weights, order);
    }
    const auto each = [&, chosen = chosen](ggml_tensor* weight, ggml_tensor* bias,
                                           ggml_tensor* in) {  // [own, used, tokens]
      ggml_tensor* out = ggml_mul_mat_id(c_, weight, in, chosen);
      return bias == nullptr ? out : ggml_add_id(c_, out, bias, chosen);
    };
    ggml_tensor* in = ggml_reshape_3d(c_, x, x->ne[0], 1, tokens);
    ggml_tensor* up = each(l.up, l.up_bias, in);
    ggml_tensor* gate = l.gate == nullptr ? nullptr : each(l.gate, l.gate_bias, in);
    ggml_tensor* out = ggml_mul(c_, each(l.down, l.down_bias, gated(gate, up)), weights);
    ggml_tensor* sum = nullptr;
    for (std::int64_t i = 0; i < used; ++i) {
      ggml_tensor* one =
          ggml_view_2d(c_, out, out->ne[0], tokens, out->nb[2], static_cast<std::size_t>(i) * out->nb[1]);
      sum = sum == nullptr ? (used == 1 ? ggml_cont(c_, one) : one) : ggml_add(c_, sum, one);
    }
    return sum;
  }

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
};

// A custom operator is a function of this process; a device that runs elsewhere would claim to support it.
bool has_custom(ggml_cgraph* graph) {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) switch (ggml_graph_node(graph, i)->op) {
      case GGML_OP_CUSTOM:
      case GGML_OP_MAP_CUSTOM1:
      case GGML_OP_MAP_CUSTOM2:
      case GGML_OP_MAP_CUSTOM3:
        return true;
      default:
        break;
    }
  return false;
}

[[noreturn]] void fail_memory(const DecoderGraph& graph, const Backends& backends) {
  fail("no memory on device {} for a step of {} tokens; use a smaller --prefill-chunk", backends.names(), graph.tokens);
}

}  // namespace

void place_graph(DecoderGraph& graph, const Backends& backends, GraphMemory& memory) {
  if (!graph.schedule && !memory.place(graph)) fail_memory(graph, backends);
}

void build_graph(DecoderGraph& graph, const Model& model, AttentionPath& path, const Backends& backends,
                 GraphMemory& memory) {
  graph.layers.last = std::min(graph.layers.last, model.hyper().layers);
  const std::size_t nodes = kNodesBeside + (kNodesPerLayer + 2 * static_cast<std::size_t>(model.hyper().experts_used) +
                                            path.nodes_per_layer()) *
                                               static_cast<std::size_t>(graph.layers.last - graph.layers.first);
  graph.context.reset(
      ggml_init({2 * nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false), nullptr, true}));
  if (!graph.context) fail("no memory for a graph of {} nodes", nodes);
  graph.graph = ggml_new_graph_custom(graph.context.get(), nodes, false);
  Builder(graph, model, path, backends.pool()).run();
  if (!backends.scheduled()) {
    if (PoolGraph::suits(graph.graph)) graph.on_pool = std::make_unique<PoolGraph>(graph.graph);
    return place_graph(graph, backends, memory);
  }

  if (backends.remote() && has_custom(graph.graph)) fail("custom operators cannot run on an RPC server");
  const bool chunk = graph.rows < graph.tokens;
  ChunkSchedule& chunks = memory.chunks();
  auto& schedule = chunk ? chunks.schedule : graph.own_schedule;
  if (!chunk || chunks.nodes < nodes) {
    std::vector<ggml_backend_t> all(backends.all().begin(), backends.all().end());
    schedule.reset();
    schedule.reset(ggml_backend_sched_new(all.data(), nullptr, static_cast<int>(all.size()), 2 * nodes, false, false));
    if (!schedule) fail_memory(graph, backends);
  }
  graph.schedule = schedule.get();
  if (chunk) {
    chunks.nodes = std::max(chunks.nodes, nodes);
    graph.chunk = ++chunks.planned;
    ggml_backend_sched_reset(graph.schedule);
  }
  // ggml gives an operator without weights to the device of the one before: then two tensors would go to a layer on
  // another device.
  for (const auto& [first, layer] : graph.first_of_layer)
    if (ggml_backend_supports_op(backends.of_layer(layer), first))
      ggml_backend_sched_set_tensor_backend(graph.schedule, first, backends.of_layer(layer));
  const std::size_t before = memory_of(graph.schedule, backends);
  const bool placed = ggml_backend_sched_alloc_graph(graph.schedule, graph.graph);
  if (before > 0 && memory_of(graph.schedule, backends) != before) count_freed_buffer();
  if (!placed) {
    if (chunk) chunks.schedule.reset(), chunks.nodes = 0;  // it may have the address of freed memory
    fail_memory(graph, backends);
  }
  graph.freed_before = freed_buffers();
}

}  // namespace palimpsest
