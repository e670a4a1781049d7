// A model's hyperparameters, read from GGUF metadata and checked against each other and against the tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/cache/geometry.h"
#include "palimpsest/core/attention_rule.h"
#include "palimpsest/core/pooling.h"
#include "palimpsest/core/rope_options.h"
#include "palimpsest/model/family.h"

namespace palimpsest {

// What a recurrent layer keeps of the tokens that it has read (cache/recurrent_state.h): the last taps - 1 inputs of a
// causal convolution, [taps - 1][channels]; then the state of each head, if any, [heads][head_dim][state_width].
struct LayerState {
  int channels = 0, taps = 0;
  StateHeads state_heads = {};
  std::size_t offset = 0;  // in the sequence's state

  std::size_t convolution_floats() const { return taps == 0 ? 0 : at(channels) * at(taps - 1); }
  std::size_t floats() const {
    return convolution_floats() + at(state_heads.heads) * at(state_heads.head_dim) * at(state_heads.state_width);
  }
};
inline constexpr int kMaxTaps = 16;

// Gemma 3n: the residual stream has several inputs per token (AltUp, arXiv 2301.13310): a layer predicts all from
// all, computes the first one and corrects all. Attention has a product of low rank beside it (Laurel, arXiv
// 2411.07501). Feed-forward gates below mean + sparsity * deviation are 0 in the first layers.
struct AltUp {
  int inputs = 0, laurel_rank = 0;  // laurel_rank: width
  int sparse_layers = 0;
  float sparsity = 0;

  explicit operator bool() const { return inputs > 0; }
};

struct Hyperparameters {
  std::string architecture;  // GGUF general.architecture
  std::string name;          // general.name, or the synthetic shape
  int vocabulary = 0, width = 0, layers = 0;
  int predicting_layers = 0;            // behind the last layer, of multi-token prediction: not used
  HeadGeometry geometry;                // each layer's heads and its window
  std::vector<int> feed_forward = {};   // [layers] hidden width; 0: no feed-forward
  std::vector<LayerState> states = {};  // [layers] floats() is 0 for a layer without; empty: no layer has one
  int trained_context = 0;
  float norm_epsilon = 1e-5F;
  float attention_scale = 0;  // 1/sqrt(key width) unless the model says otherwise
  RopeOptions rope;
  std::optional<RopeOptions> local_rope = {};  // of layers with a window, if different
  std::vector<bool> local_rope_layers = {};    // [layers] which use local_rope instead; empty: those with a window
  std::vector<float> alibi = {};               // [a layer's query heads] slopes; empty: no ALiBi
  int learned_positions = 0;                   // rows of the position embedding; 0: none
  float attention_soft_cap = 0;                // scores become cap * tanh(score / cap); 0: off
  float output_soft_cap = 0;                   // likewise for logits
  float embedding_scale = 1, residual_scale = 1,
        logit_scale = 1;                               // factors: of embeddings, of what layers add, of logits
  std::vector<std::vector<float>> sink_logits = {};    // [layers][query heads]; empty: none
  std::vector<std::vector<float>> query_factors = {};  // [layers][key width]: AttentionShape::query_factor; empty: none
  bool unweighted_qk_norm = false;                     // QkNorm::kUnweighted
  // Queries of layers without positions are multiplied by 1 + slope * ln(1 + floor((position + offset) / interval)); 0:
  // none.
  float query_temperature_slope = 0;
  int query_temperature_interval = 1, query_temperature_offset = 1;  // the offset is added to the position
  bool query_temperature_everywhere = false;                         // also in layers with positions
  float attention_output_scale = 1;                                  // factor of what attention adds
  float clamp_qkv = 0;                           // queries, keys and values are clamped to [-clamp, clamp]; 0: off
  bool parallel = false;                         // attention and feed-forward read the same x
  bool second_norm = false;                      // attention reads attn_norm_2, the feed-forward in parallel attn_norm
  std::vector<std::array<float, 4>> xielu = {};  // [layers] alpha_n, alpha_p, beta, eps of Activation::kXielu
  int experts = 0, experts_used = 0;             // of a mixture; 0: dense
  int expert_feed_forward = 0;
  int shared_feed_forward = 0;  // width of the experts that all tokens use; 0: none
  int leading_dense = 0;        // first layers without a mixture
  int expert_latent = 0;        // width of what the chosen experts read and give, by two products; 0: the model's
  int expert_interval = 1;      // the last layer of each so many has a mixture
  Routing routing = Routing::kSoftmax;
  bool gate_up_in_one = false;    // of experts: ffn_gate_up_exps, gates first
  bool normalize_experts = true;  // weights of the chosen experts sum to 1 (before their scale)
  // [layers] silu(gate) is at most this, and up within [-limit, limit]: of the chosen experts; of the shared experts
  // and of layers without a mixture. 0: off; empty: off in all layers.
  std::vector<float> expert_limits = {}, gate_limits = {};
  float expert_scale = 1;   // factor of these weights
  float mixture_scale = 1;  // factor of the sum of the chosen and the shared experts
  // Grove MoE (arXiv 2508.07785): each group of so many experts in a row has an adjugate expert of this width; those of
  // the chosen experts' groups read the mixture's result, and theirs times the scale is added to it. 0: none.
  int adjugate_group = 0, adjugate_feed_forward = 0;
  float adjugate_scale = 1;
  int expert_groups = 1, expert_groups_used = 1;  // experts are chosen from the groups with the highest two scores
  LatentAttention latent = {};
  bool delta_in_one = false;  // q, k, v and z of the delta rule are one product, by group
  AltUp alt_up = {};
  // Each layer reads an embedding of the token of its own (Gemma 3n, Gemma 4), of this width; 0: none. With AltUp it is
  // added to all inputs but the first, else to the layer's result:  x = x + norm(out(act(gate x) * embedding))
  int per_layer = 0;
  std::vector<int> kv_layers = {};   // [layers] the layer whose cache a layer reads; empty: all have their own
  Pooling pooling = Pooling::kMean;  // of embeddings; kNone: the file asks for another kind
  std::size_t parameters = 0, weight_bytes = 0;
  // Paths of model.duo and model.profile next to model.gguf (budget/split.h): streaming heads, and each head's share of
  // the budget. Empty: there is no such file.
  std::string streaming_head_file, profile_file;

  // RoPE tables: 0 is rope, 1 is local_rope.
  int ropes() const { return local_rope ? 2 : 1; }
  int rope_of(int layer) const {
    if (!local_rope) return 0;
    const bool local = local_rope_layers.empty() ? geometry.layer(layer).window != INT32_MAX
                                                 : local_rope_layers[static_cast<std::size_t>(layer)];
    return local ? 1 : 0;
  }
  const RopeOptions& rope_table(int index) const { return index == 0 ? rope : *local_rope; }
  int kv_layer(int layer) const { return kv_layers.empty() ? layer : kv_layers[at(layer)]; }
  // Layers from `own` on read the cache of the last one before it with the same window and the same heads. false: there
  // is none.
  bool share_kv(int own);
  // Heads of layers with windows have these widths. Throws Error for widths that no layer can have.
  void set_window_widths(int key, int value);
  int expert_width() const { return expert_latent > 0 ? expert_latent : width; }
  // The layer scales its queries by their positions.
  bool has_query_temperature(int layer) const {
    return query_temperature_slope != 0 && (query_temperature_everywhere || rope_table(rope_of(layer)).is_unrotated());
  }
  bool is_mixture(int layer) const {
    return experts > 0 && layer >= leading_dense && (layer + 1) % expert_interval == 0;
  }
  bool is_recurrent(int layer) const { return !states.empty() && states[at(layer)].floats() > 0; }
  std::size_t state_floats() const { return states.empty() ? 0 : states.back().offset + states.back().floats(); }
  // Layers with a window have rotary positions, the others none. No window: all have them.
  void rotate_in_windows(std::span<const std::int32_t> windows);
  void add_recurrent_layers(int taps, const StateHeads& heads = {},
                            bool all = false);  // else those with query heads, but no KV heads
  PositionKind positions() const;
};

// ALiBi's slopes (arXiv 2108.12409, section 3): a geometric series, interleaved with a second one if `heads` is not a
// power of 2.
std::vector<float> alibi_slopes(int heads, double max_bias);

class GgufFile;

// `context`: max context in tokens, which selects a file's short or long RoPE factors; 0: the trained context. Throws
// Error for a key that is missing, of the wrong type, out of range, or inconsistent with another or with the
// embedding's shape.
Hyperparameters read_hyperparameters(const GgufFile& file, const Family& family, int context = 0);

}  // namespace palimpsest
