// The traits of one architecture; everything else is the common decoder graph (graph/graph_builder.h).
//
//   x = embedding (+ learned positions) (norm)
//   each layer:  a = attention(norm x)           sequential:  x = x + a,  x = x + feed_forward(norm x)
//                                                parallel:    x = x + a + feed_forward(norm x)
//   logits = output(norm x)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/rope_options.h"

namespace palimpsest {

struct Hyperparameters;
class ArchMetadata;  // model/arch_metadata.h

enum class Presence { kNo, kOptional, kYes };  // of a tensor in the file

enum class Norm {
  kRms,       // x / rms(x) * weight
  kLayer,     // (x - mean) / deviation * weight + bias
  kBareLayer  // (x - mean) / deviation: no tensors
};
enum class QkNorm {  // of queries and keys before the rotation, of the family's kind
  kNone,
  kHead,      // each head, with one weight for all: [head_dim]
  kPerHead,   // each head, with its own: [head_dim, heads]
  kAllHeads,  // all heads as one row: [head_dim * heads]
  // Each head, after the rotation. RMS is the same before it, so queries and keys are divided by it there; the product
  // of both weights is Hyperparameters::query_factors.
  kAfterRotation,
  kUnweighted  // each head, without weights, in layers with positions (Hyperparameters::unweighted_qk_norm)
};
enum class FeedForward {
  kGated,       // down(act(gate x) * up x)
  kPackedGate,  // the same; gate and up are one tensor, ffn_up
  kPlain        // down(act(up x))
};
enum class Activation {
  kSilu,
  kGelu,  // the tanh form, as ggml computes it
  kRelu,
  kReluSquared,
  kXielu,         // xIELU (arXiv 2411.13010), of Hyperparameters::xielu
  kClampedSwiglu  // of gpt-oss (arXiv 2508.10925): g * sigmoid(1.702 g) * (u + 1), g at most 7, u within [-7, 7]
};
// How a mixture weighs the chosen experts of a token: those with the highest scores.
enum class Routing {
  kSoftmax,          // softmax of all scores
  kSigmoid,          // of each score
  kSoftmaxOfChosen,  // softmax of the chosen scores
};

// An additional metadata key of a synthetic model: the part after "ARCHITECTURE.".
struct ExtraKey {
  // kPattern: flags of layers, false for the last of each `value`.
  enum class Type { kInteger, kSigned, kNumber, kFlag, kPattern };
  std::string name;
  Type type;
  double value;
  bool whole = false;  // `name` is the whole key
};

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): keys and values are products of one
// normed latent vector per token; a key also has a rotary part that all heads share. The latent form (`absorbed`)
// multiplies queries by the heads' key matrices and what is attended by their value matrices, so that the cache holds
// one head:
//
//   key    [rotary part | latent]       value  [latent]
//
// The expanded form, of files without these matrices, holds the keys and values of all heads.
struct LatentAttention {
  int rank = 0;            // of the latent; 0: ordinary attention
  int query_rank = 0;      // 0: queries are one product
  int key = 0, value = 0;  // of a head: width of the part of a key without rotation, of a value
  bool absorbed = true;

  explicit operator bool() const { return rank > 0; }
};

// Recurrent layers: they have a state (cache/recurrent_state.h). kConvolution: gated short
// convolutions (LFM2, arXiv 2511.23404, section 2). kMamba2: arXiv 2405.21060, section 7, in groups. kDelta: the gated
// delta rule (arXiv 2412.06464, section 3.1).
//
//   kConvolution   B, C, x = in(x);  out(C * convolution(B * x))
//   kMamba2        z, x, B, C, t = in(x);  x, B, C = silu(convolution(x, B, C));  t = softplus(t + bias)
//                  each head:  state = exp(t * a) * state + t * x B^T;  y = state C + d * x
//                  out(norm(silu(z) * y))
//   kDelta         q, k, v = silu(convolution(in(x)));  q, k of length 1;  t = softplus(t(x) + bias)
//                  each head:  state = exp(t * a) * state;  state = state + sigmoid(b(x)) * (v - state k) k^T;
//                              y = state q / sqrt(state_width)
//                  out(norm(y) * silu(z(x)))
enum class Recurrence { kNone, kConvolution, kMamba2, kDelta };
struct StateHeads {
  int heads = 0, head_dim = 0;       // of x; with kDelta of v
  int groups = 0, state_width = 0;   // of B and C, of k and q; a group of heads shares one
  bool tiled = false;                // head i is of group i % groups; else groups are runs of heads
  static constexpr int kLanes = 16;  // state_width is a multiple

  int group(int head) const { return tiled ? head % groups : head / (heads / groups); }
  int channels() const { return heads * head_dim + 2 * groups * state_width; }  // of the convolution

  explicit operator bool() const { return heads > 0; }
};

// The smallest model with all features of the family: `--synthetic tiny-ARCHITECTURE`, for tests.
struct TinyShape {
  int query_heads = 8, kv_heads = 4, head_dim = 32;
  int layers = 2, width = 256;
  int rope_dims = -1;  // -1: all
  bool tied = true;
  int value_dim = 0;  // 0: head_dim
  int experts = 0, experts_used = 0, shared_feed_forward = 0, leading_dense = 0, expert_interval = 1;
  int expert_latent = 0;                              // Hyperparameters::expert_latent
  int adjugate_group = 0, adjugate_feed_forward = 0;  // likewise
  LatentAttention latent = {};
  int convolution_taps = 0;
  StateHeads state_heads = {};
  int attention_interval = 0;  // the last layer of each so many has attention; 0: as kv_heads_of says
  std::vector<int> query_heads_of = {}, kv_heads_of = {}, feed_forward_of = {};  // [layers], if layers differ
  // Layers with windows, all but the last of each `window_period`, have heads of this width; 0: all are alike.
  int window_head_dim = 0, window_period = 0;
  int own_kv_layers = 0;  // Family::own_kv_layers of files that say how many
  int per_layer = 0;      // Hyperparameters::per_layer
  double rope_share = 1;  // of the pairs that rotate, of layers without windows: rope_freqs.weight
  std::vector<ExtraKey> keys = {};
};

struct Family {
  std::string_view architecture;  // GGUF general.architecture
  std::string_view models;        // well-known models of it, for documentation
  std::string_view limits = {};   // what its files may ask for and the loader refuses, for documentation
  bool in_libllama = true;        // else the reference of its tests are plain loops
  // Positions. `rope`: which rows of the file's Q and K are rotary pairs. ALiBi: `read` fills Hyperparameters::alibi.
  RopeKind rope = RopeKind::kHalves;
  Presence learned_positions = Presence::kNo;  // position_embd
  bool yarn_log_multiplier = false;            // `read` applies rope.scaling.yarn_log_multiplier
  // Norms.
  Norm norm = Norm::kRms;
  Presence norm_bias = Presence::kNo;
  Presence embedding_norm = Presence::kNo;   // token_embd_norm
  Presence attention_norm = Presence::kYes;  // attn_norm, before
  Presence post_norms = Presence::kNo;       // post_attention_norm, post_ffw_norm: after, before adding to x
  Presence feed_forward_norm =
      Presence::kYes;  // ffn_norm, before; without it, a parallel layer uses attn_norm for both
  std::string_view feed_forward_norm_name = "ffn_norm", output_norm_name = "output_norm";
  std::string_view post_attention_norm_name = "post_attention_norm", post_feed_forward_norm_name = "post_ffw_norm";
  bool bare_post_norms = false;         // the names of these have no ".weight"
  Presence sub_norms = Presence::kNo;   // attn_sub_norm, ffn_sub_norm: of what attn_output and ffn_down multiply
  bool bare_feed_forward_norm = false;  // the name of its tensor has no ".weight"
  QkNorm qk_norm = QkNorm::kNone;
  Presence qk_norm_presence = Presence::kYes;
  Presence qk_norm_bias = Presence::kNo;
  // Attention.
  bool packed_qkv = false;                  // Q, K and V are usually one tensor in its files; both forms are read
  Presence qkv_bias = Presence::kNo;        // attn_{q,k,v}.bias, attn_qkv.bias
  Presence attention_bias = Presence::kNo;  // attn_output.bias
  Presence sink_logits = Presence::kNo;     // attn_sinks: AttentionShape::sink_logits
  Presence value_weights = Presence::kYes;  // attn_v; without it values are keys, before their norm and rotation
  bool value_norm = false;                  // values are divided by their RMS, without weights
  // Layers from this one on read the cache of an earlier one (Hyperparameters::kv_layers); 0: none.
  int own_kv_layers = 0;
  bool gated_attention = false;  // each head's Q rows are followed by those of a gate: sigmoid(gate) * out
  bool attention_gate = false;   // the same, of a tensor of its own: attn_gate
  bool head_gates = false;       // attn_gate has one row per head: sigmoid(gate) * all of the head's out
  // Feed-forward.
  FeedForward feed_forward = FeedForward::kGated;
  Activation activation = Activation::kSilu;
  Presence feed_forward_bias = Presence::kNo;  // of gate, up and down
  Presence experts = Presence::kNo;            // a mixture of experts instead
  Routing routing = Routing::kSoftmax;
  Presence expert_bias = Presence::kNo;     // of the router and of each expert's gate, up and down
  Presence selection_bias = Presence::kNo;  // exp_probs_b, added to scores to choose experts, not to weigh them
  bool experts_of_scaled = false;           // the expert's weight multiplies its input, not its result; one per token
  bool gated_shared_experts = false;        // ffn_gate_inp_shexp: sigmoid of one number per token
  // The experts of all tokens (Hyperparameters::shared_feed_forward): the end of their tensors' names.
  std::string_view shared_experts_end = "_shexp";
  // Chosen and shared experts have norms each, before and after (ffn_norm, post_ffw_norm_1; pre_ffw_norm_2,
  // post_ffw_norm_2), and the router reads x / rms(x) / sqrt(width) * ffn_gate_inp.scale, of the x before these norms.
  bool normed_experts = false;
  Presence expert_scales = Presence::kNo;  // ffn_down_exps.scale: factors of experts' results
  bool router_of_layer_input = false;      // the router reads the layer's input, before its norm
  bool experts_of_layer_input = false;     // the chosen experts read the layer's input, after a norm: ffn_norm_exps
  bool parallel = false;                   // attention and feed-forward read the same x
  // Layers may differ in heads and feed-forward width. Without KV heads attention is one product, attn_output; without
  // query heads, too, there is none. Width 0: no feed-forward.
  bool layers_differ = false;
  bool single_parts = false;  // a layer is one of recurrence, attention and feed-forward, after attn_norm
  Recurrence recurrence = Recurrence::kNone;  // of layers without KV heads
  bool recurrent_beside_attention = false;    // ... of all layers: both read the same input, and are added
  Presence gated_norm = Presence::kYes;       // ssm_norm, of Mamba-2
  bool alt_up = false;                        // Hyperparameters::alt_up
  Presence layer_scale = Presence::kNo;       // layer_output_scale: one factor of what a layer gives
  // Input and output.
  bool scaled_embedding = false;          // times sqrt(width)
  Presence output = Presence::kOptional;  // output.weight; else tied to the embedding
  Presence output_bias = Presence::kNo;   // output.bias

  // Reads family-specific metadata, after the common keys; nullptr: none.
  void (*read)(const ArchMetadata& keys, Hyperparameters& hyper) = nullptr;
  TinyShape tiny = {};
};

}  // namespace palimpsest
