#include "palimpsest/model/tensors.h"

namespace palimpsest {

namespace {

using Kind = TensorSpec::Kind;

Presence both(Presence a, Presence b) {
  return a == Presence::kNo || b == Presence::kNo ? Presence::kNo : a == Presence::kYes ? b : Presence::kOptional;
}

class List {
 public:
  List(const Family& family, const Hyperparameters& hyper) : f_(family), h_(hyper) {}

  void matrix(ggml_tensor*& target, const std::string& name, std::int64_t in, std::int64_t out,
              Presence presence = Presence::kYes) {
    out_.push_back({name + ".weight", {in, out, 1}, Kind::kMatrix, presence, &target});
  }
  void experts(ggml_tensor*& target, const std::string& name, std::int64_t in, std::int64_t out) {
    experts(target, name, in, out, h_.experts);
  }
  void experts(ggml_tensor*& target, const std::string& name, std::int64_t in, std::int64_t out, std::int64_t count) {
    out_.push_back({name + ".weight", {in, out, count}, Kind::kExperts, Presence::kYes, &target});
  }
  void heads(ggml_tensor*& target, const std::string& name, std::int64_t in, std::int64_t out, std::int64_t count) {
    out_.push_back({name + ".weight", {in, out, count}, Kind::kHeads, Presence::kYes, &target});
  }
  void vector(ggml_tensor*& target, const std::string& name, std::int64_t size, Presence presence,
              std::int64_t rows = 1) {
    out_.push_back({name, {size, rows, 1}, Kind::kVector, presence, &target});
  }
  void norm(NormWeights& slots, const std::string& name, std::int64_t size, Presence presence = Presence::kYes) {
    norm(slots, name, size, presence, f_.norm_bias, 1);
  }
  void norm(NormWeights& slots, const std::string& name, std::int64_t size, Presence presence, Presence bias,
            std::int64_t rows) {
    if (f_.norm == Norm::kBareLayer) {
      slots.bare = presence != Presence::kNo;
      return;
    }
    vector(slots.weight, name + ".weight", size, presence, rows);
    vector(slots.bias, name + ".bias", size, both(presence, bias), rows);
  }
  void post_norm(NormWeights& slots, const std::string& name) {
    if (f_.bare_post_norms) return vector(slots.weight, name, h_.width, f_.post_norms);
    norm(slots, name, h_.width, f_.post_norms);
  }
  void host_rows(const std::string& name, std::int64_t rows, Presence presence, std::int64_t width = 0) {
    out_.push_back({name, {width > 0 ? width : h_.width, rows, 1}, Kind::kHostRows, presence, nullptr});
  }

  void ends(Weights& w) {
    host_rows("token_embd.weight", h_.vocabulary, Presence::kYes);
    host_rows("position_embd.weight", h_.learned_positions, h_.learned_positions > 0 ? Presence::kYes : Presence::kNo);
    norm(w.embedding_norm, "token_embd_norm", h_.width, f_.embedding_norm);
    norm(w.output_norm, std::string(f_.output_norm_name), h_.width);
    matrix(w.output, "output", h_.width, h_.vocabulary, f_.output);
    vector(w.output_bias, "output.bias", h_.vocabulary, f_.output_bias);
    if (h_.per_layer == 0) return;
    const std::int64_t all = std::int64_t{h_.layers} * h_.per_layer;
    host_rows("per_layer_token_embd.weight", h_.vocabulary, Presence::kYes, all);
    matrix(w.per_layer_projection, "per_layer_model_proj", h_.width, all);
    norm(w.per_layer_norm, "per_layer_proj_norm", h_.per_layer);
    if (!h_.alt_up) return;
    heads(w.altup_in, "altup_proj", h_.width, h_.width, h_.alt_up.inputs - 1);
    heads(w.altup_out, "altup_unembd_proj", h_.width, h_.width, h_.alt_up.inputs - 1);
  }

  void alt_up(LayerWeights& l, const std::string& blk) {
    const AltUp& a = h_.alt_up;
    matrix(l.altup_router, blk + "altup_router", h_.width, a.inputs);
    norm(l.altup_norm, blk + "altup_router_norm", h_.width);
    matrix(l.altup_predict, blk + "altup_predict_coef", a.inputs, std::int64_t{a.inputs} * a.inputs);
    matrix(l.altup_correct, blk + "altup_correct_coef", a.inputs, a.inputs);
    vector(l.altup_scale, blk + "altup_correct_scale.weight", h_.width, Presence::kYes);
    matrix(l.laurel_in, blk + "laurel_l", h_.width, a.laurel_rank);
    matrix(l.laurel_out, blk + "laurel_r", a.laurel_rank, h_.width);
    norm(l.laurel_norm, blk + "laurel_post_norm", h_.width);
  }

  void per_layer(LayerWeights& l, const std::string& blk) {
    matrix(l.per_layer_gate, blk + "inp_gate", h_.width, h_.per_layer);
    matrix(l.per_layer_out, blk + "proj", h_.per_layer, h_.width);
    norm(l.per_layer_norm, blk + "post_norm", h_.width);
  }

  // A layer that reads the cache of another, whose geometry is `kv`. Its file has keys and values, too: unused.
  void attention_to(LayerWeights& l, const LayerGeometry& g, const LayerGeometry& kv, const std::string& blk) {
    const std::int64_t k = std::int64_t{kv.kv_heads} * kv.key_width, v = std::int64_t{kv.kv_heads} * kv.value_width;
    norm(l.attention_norm, blk + "attn_norm", h_.width, f_.attention_norm);
    matrix(l.q, blk + "attn_q", h_.width, std::int64_t{g.query_heads} * g.key_width);
    norm(l.q_norm, blk + "attn_q_norm", g.key_width);
    out_.push_back({blk + "attn_k.weight", {h_.width, k, 1}, Kind::kUnused, Presence::kOptional, nullptr});
    out_.push_back({blk + "attn_v.weight", {h_.width, v, 1}, Kind::kUnused, Presence::kOptional, nullptr});
    out_.push_back({blk + "attn_k_norm.weight", {kv.key_width, 1, 1}, Kind::kUnused, Presence::kOptional, nullptr});
    matrix(l.attention_output, blk + "attn_output", std::int64_t{g.query_heads} * g.value_width, h_.width);
    post_norm(l.post_attention_norm, blk + std::string(f_.post_attention_norm_name));
  }

  void attention(LayerWeights& l, const LayerGeometry& g, const std::string& blk, bool packed) {
    const std::int64_t q = std::int64_t{g.query_heads} * g.key_width, k = std::int64_t{g.kv_heads} * g.key_width;
    const std::int64_t v = std::int64_t{g.kv_heads} * g.value_width,
                       mixed = g.kv_heads == 0 ? h_.width : std::int64_t{g.query_heads} * g.value_width;
    if (g.query_heads == 0) return;
    if (h_.latent) return latent_attention(l, g.query_heads, blk);
    norm(l.attention_norm, blk + (h_.second_norm ? "attn_norm_2" : "attn_norm"), h_.width, f_.attention_norm);
    if (g.kv_heads == 0) {
      // one product
    } else if (packed) {
      matrix(l.qkv, blk + "attn_qkv", h_.width, q + k + v);
      vector(l.qkv_bias, blk + "attn_qkv.bias", q + k + v, f_.qkv_bias);
    } else {
      matrix(l.q, blk + "attn_q", h_.width, f_.gated_attention ? 2 * q : q);
      matrix(l.k, blk + "attn_k", h_.width, k);
      matrix(l.v, blk + "attn_v", h_.width, v, f_.value_weights);
      vector(l.q_bias, blk + "attn_q.bias", q, f_.qkv_bias);
      vector(l.k_bias, blk + "attn_k.bias", k, f_.qkv_bias);
      vector(l.v_bias, blk + "attn_v.bias", v, f_.qkv_bias);
    }
    const auto qk_norm = [&](NormWeights& slots, const std::string& name, std::int64_t heads) {
      const bool whole = f_.qk_norm == QkNorm::kAllHeads;
      const Presence presence = f_.qk_norm == QkNorm::kNone ? Presence::kNo : f_.qk_norm_presence;
      norm(slots, blk + name, whole ? heads * g.key_width : g.key_width, presence, f_.qk_norm_bias,
           f_.qk_norm == QkNorm::kPerHead ? heads : 1);
    };
    if (f_.qk_norm == QkNorm::kAfterRotation) {
      for (const char* name : {"attn_q_norm.weight", "attn_k_norm.weight"})
        out_.push_back({blk + name, {g.key_width, 1, 1}, Kind::kNumbers, Presence::kYes, nullptr});
    } else if (g.kv_heads > 0 && f_.qk_norm != QkNorm::kUnweighted) {
      qk_norm(l.q_norm, "attn_q_norm", g.query_heads);
      qk_norm(l.k_norm, "attn_k_norm", g.kv_heads);
    }
    if (f_.attention_gate) matrix(l.attention_gate, blk + "attn_gate", h_.width, mixed);
    if (f_.head_gates && g.kv_heads > 0) matrix(l.attention_gate, blk + "attn_gate", h_.width, g.query_heads);
    if (g.kv_heads > 0)
      out_.push_back({blk + "attn_sinks.weight", {g.query_heads, 1, 1}, Kind::kNumbers, f_.sink_logits, nullptr});
    norm(l.attention_sub_norm, blk + "attn_sub_norm", mixed, f_.sub_norms);
    matrix(l.attention_output, blk + "attn_output", mixed, h_.width);
    vector(l.attention_bias, blk + "attn_output.bias", h_.width, f_.attention_bias);
    post_norm(l.post_attention_norm, blk + std::string(f_.post_attention_norm_name));
  }

  void recurrent(LayerWeights& l, const LayerState& s, const std::string& blk) {
    if (!f_.recurrent_beside_attention) norm(l.attention_norm, blk + "attn_norm", h_.width, f_.attention_norm);
    if (f_.recurrence == Recurrence::kMamba2) return mamba(l, s, blk);
    if (f_.recurrence == Recurrence::kDelta) return delta(l, s, blk);
    matrix(l.recurrent_in, blk + "shortconv.in_proj", h_.width, std::int64_t{3} * h_.width);
    vector(l.convolution, blk + "shortconv.conv.weight", s.taps, Presence::kYes, h_.width);
    matrix(l.attention_output, blk + "shortconv.out_proj", h_.width, h_.width);
  }

  void mamba(LayerWeights& l, const LayerState& s, const std::string& blk) {
    const StateHeads& m = s.state_heads;
    const std::int64_t inner = std::int64_t{m.heads} * m.head_dim;
    matrix(l.recurrent_in, blk + "ssm_in", h_.width, inner + s.channels + m.heads);
    vector(l.convolution, blk + "ssm_conv1d.weight", s.taps, Presence::kYes, s.channels);
    vector(l.convolution_bias, blk + "ssm_conv1d.bias", s.channels, Presence::kYes);
    vector(l.time_bias, blk + "ssm_dt.bias", m.heads, Presence::kYes);
    vector(l.decay, blk + "ssm_a", 1, Presence::kYes, m.heads);
    vector(l.skip, blk + "ssm_d", 1, Presence::kYes, m.heads);
    norm(l.gated_norm, blk + "ssm_norm", inner / m.groups, f_.gated_norm, Presence::kNo, m.groups);
    matrix(f_.recurrent_beside_attention ? l.recurrent_out : l.attention_output, blk + "ssm_out", inner, h_.width);
  }

  void delta(LayerWeights& l, const LayerState& s, const std::string& blk) {
    const StateHeads& m = s.state_heads;
    const std::int64_t inner = std::int64_t{m.heads} * m.head_dim;
    if (h_.delta_in_one) {
      matrix(l.recurrent_in, blk + "ssm_in", h_.width, s.channels + inner);
    } else {
      matrix(l.recurrent_in, blk + "attn_qkv", h_.width, s.channels);
      matrix(l.recurrent_gate, blk + "attn_gate", h_.width, inner);
    }
    vector(l.convolution, blk + "ssm_conv1d.weight", s.taps, Presence::kYes, s.channels);
    vector(l.time_bias, blk + "ssm_dt.bias", m.heads, Presence::kYes);
    vector(l.decay, blk + "ssm_a", m.heads, Presence::kYes);
    if (m.tiled) {
      matrix(l.beta, blk + "ssm_beta", h_.width, m.heads);
      matrix(l.time, blk + "ssm_alpha", h_.width, m.heads);
    } else {
      matrix(l.beta_time, blk + "ssm_ba", h_.width, std::int64_t{2} * m.heads);
    }
    norm(l.gated_norm, blk + "ssm_norm", m.head_dim, Presence::kYes);
    matrix(l.attention_output, blk + "ssm_out", inner, h_.width);
  }

  void latent_attention(LayerWeights& l, std::int64_t query_heads, const std::string& blk) {
    const LatentAttention& a = h_.latent;
    const std::int64_t q = query_heads * (a.key + h_.rope.dims);
    norm(l.attention_norm, blk + "attn_norm", h_.width, f_.attention_norm);
    if (a.query_rank > 0) {
      matrix(l.query_latent, blk + "attn_q_a", h_.width, a.query_rank);
      norm(l.query_latent_norm, blk + "attn_q_a_norm", a.query_rank);
      matrix(l.q, blk + "attn_q_b", a.query_rank, q);
    } else {
      matrix(l.q, blk + "attn_q", h_.width, q);
    }
    matrix(l.latent, blk + "attn_kv_a_mqa", h_.width, a.rank + h_.rope.dims);
    norm(l.latent_norm, blk + "attn_kv_a_norm", a.rank);
    if (a.absorbed) {
      heads(l.absorbed_keys, blk + "attn_k_b", a.key, a.rank, query_heads);
      heads(l.absorbed_values, blk + "attn_v_b", a.rank, a.value, query_heads);
    } else {
      matrix(l.keys_values, blk + "attn_kv_b", a.rank, query_heads * (a.key + a.value));
    }
    matrix(l.attention_output, blk + "attn_output", query_heads * a.value, h_.width);
  }

  // CogVLM's weights of image tokens: its text does not use them.
  void of_images(const LayerGeometry& g, std::int64_t size, const std::string& blk) {
    const std::int64_t q = std::int64_t{g.query_heads} * g.key_width;
    const auto unused = [&](const char* name, std::int64_t in, std::int64_t out) {
      out_.push_back({blk + name, {in, out, 1}, Kind::kUnused, Presence::kOptional, nullptr});
    };
    unused("vis_attn_qkv.weight", h_.width, 3 * q);
    unused("vis_attn_output.weight", q, h_.width);
    unused("vis_gate.weight", h_.width, size);
    unused("vis_up.weight", h_.width, size);
    unused("vis_down.weight", size, h_.width);
  }

  void feed_forward(LayerWeights& l, std::int64_t size, const std::string& blk, bool mixture) {
    if (size == 0) return;
    const std::string name =
        blk + std::string(f_.single_parts || h_.second_norm ? "attn_norm" : f_.feed_forward_norm_name);
    if (f_.bare_feed_forward_norm)
      vector(l.feed_forward_norm.weight, name, h_.width, f_.feed_forward_norm);
    else
      norm(l.feed_forward_norm, name, h_.width, h_.second_norm ? Presence::kYes : f_.feed_forward_norm);
    post_norm(l.post_feed_forward_norm, blk + std::string(f_.post_feed_forward_norm_name));
    if (mixture) {
      const std::int64_t own = h_.expert_feed_forward, width = h_.expert_width();
      matrix(l.router, blk + "ffn_gate_inp", h_.width, h_.experts);
      if (h_.gate_up_in_one) {
        experts(l.up, blk + "ffn_gate_up_exps", width, 2 * own);
      } else {
        if (f_.feed_forward == FeedForward::kGated) experts(l.gate, blk + "ffn_gate_exps", width, own);
        experts(l.up, blk + "ffn_up_exps", width, own);
      }
      experts(l.down, blk + "ffn_down_exps", own, width);
      if (h_.adjugate_group > 0) {
        const std::int64_t adjugate = h_.adjugate_feed_forward, groups = h_.experts / h_.adjugate_group;
        experts(l.adjugate_gate, blk + "ffn_gate_chexps", h_.width, adjugate, groups);
        experts(l.adjugate_up, blk + "ffn_up_chexps", h_.width, adjugate, groups);
        experts(l.adjugate_down, blk + "ffn_down_chexps", adjugate, h_.width, groups);
      }
      if (f_.normed_experts) {
        vector(l.router_scale, blk + "ffn_gate_inp.scale", h_.width, Presence::kYes);
        norm(l.post_shared_norm, blk + "post_ffw_norm_1", h_.width);
        norm(l.experts_norm, blk + "pre_ffw_norm_2", h_.width);
        norm(l.post_experts_norm, blk + "post_ffw_norm_2", h_.width);
      }
      vector(l.expert_scales, blk + "ffn_down_exps.scale", h_.experts, f_.expert_scales);
      if (h_.expert_latent > 0) {
        matrix(l.latent_down, blk + "ffn_latent_down", h_.width, width);
        matrix(l.latent_up, blk + "ffn_latent_up", width, h_.width);
      }
      vector(l.router_bias, blk + "ffn_gate_inp.bias", h_.experts, f_.expert_bias);
      vector(l.gate_bias, blk + "ffn_gate_exps.bias", own, f_.expert_bias, h_.experts);
      vector(l.up_bias, blk + "ffn_up_exps.bias", own, f_.expert_bias, h_.experts);
      vector(l.down_bias, blk + "ffn_down_exps.bias", h_.width, f_.expert_bias, h_.experts);
      vector(l.selection_bias, blk + "exp_probs_b.bias", h_.experts, f_.selection_bias);
      if (f_.experts_of_layer_input) norm(l.experts_norm, blk + "ffn_norm_exps", h_.width);
      if (h_.shared_feed_forward == 0) return;
      const std::string end(f_.shared_experts_end);
      if (f_.gated_shared_experts) matrix(l.shared_router, blk + "ffn_gate_inp_shexp", h_.width, 1);
      if (f_.feed_forward == FeedForward::kGated)
        matrix(l.shared_gate, blk + "ffn_gate" + end, h_.width, h_.shared_feed_forward);
      matrix(l.shared_up, blk + "ffn_up" + end, h_.width, h_.shared_feed_forward);
      matrix(l.shared_down, blk + "ffn_down" + end, h_.shared_feed_forward, h_.width);
      return;
    }
    if (f_.feed_forward == FeedForward::kGated) {
      matrix(l.gate, blk + "ffn_gate", h_.width, size);
      vector(l.gate_bias, blk + "ffn_gate.bias", size, f_.feed_forward_bias);
    }
    matrix(l.up, blk + "ffn_up", h_.width, f_.feed_forward == FeedForward::kPackedGate ? 2 * size : size);
    norm(l.feed_forward_sub_norm, blk + "ffn_sub_norm", size, f_.sub_norms);
    matrix(l.down, blk + "ffn_down", size, h_.width);
    vector(l.up_bias, blk + "ffn_up.bias", size, f_.feed_forward_bias);
    vector(l.down_bias, blk + "ffn_down.bias", h_.width, f_.feed_forward_bias);
  }

  std::vector<TensorSpec> take() { return std::move(out_); }

 private:
  const Family& f_;
  const Hyperparameters& h_;
  std::vector<TensorSpec> out_;
};

}  // namespace

std::vector<TensorSpec> tensors_of(const Family& family, const Hyperparameters& hyper, bool packed_qkv,
                                   Weights& weights) {
  List list(family, hyper);
  list.ends(weights);
  weights.layers.assign(static_cast<std::size_t>(hyper.layers), {});
  for (int i = 0; i < hyper.layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    const auto at = static_cast<std::size_t>(i);
    if (hyper.is_recurrent(i)) list.recurrent(weights.layers[at], hyper.states[at], blk);
    if (hyper.kv_layer(i) != i)
      list.attention_to(weights.layers[at], hyper.geometry.layer(i), hyper.geometry.layer(hyper.kv_layer(i)), blk);
    else if (!hyper.is_recurrent(i) || family.recurrent_beside_attention)
      list.attention(weights.layers[at], hyper.geometry.layer(i), blk, packed_qkv);
    if (family.architecture == "cogvlm") list.of_images(hyper.geometry.layer(i), hyper.feed_forward[at], blk);
    list.feed_forward(weights.layers[at], hyper.feed_forward[at], blk, hyper.is_mixture(i));
    if (hyper.alt_up) list.alt_up(weights.layers[at], blk);
    if (hyper.per_layer > 0) list.per_layer(weights.layers[at], blk);
    list.vector(weights.layers[at].layer_scale, blk + "layer_output_scale.weight", 1, family.layer_scale);
  }
  return list.take();
}

}  // namespace palimpsest
