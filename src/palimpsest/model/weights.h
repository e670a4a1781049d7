// The tensors of a loaded model, as the graph reads them.
#pragma once

#include <ggml-cpp.h>

#include <unordered_map>
#include <vector>

#include "palimpsest/core/address_range.h"
#include "palimpsest/core/gguf_file.h"
#include "palimpsest/core/types.h"
#include "palimpsest/matmul/panels.h"
#include "palimpsest/model/backend.h"

namespace palimpsest {

// nullptr: absent.
struct NormWeights {
  ggml_tensor *weight = nullptr, *bias = nullptr;
  bool bare = false;  // a norm without tensors
  bool exists() const { return bare || weight != nullptr; }
};
struct LayerWeights {
  NormWeights attention_norm, q_norm, k_norm, query_latent_norm, latent_norm, post_attention_norm, feed_forward_norm,
      post_feed_forward_norm, attention_sub_norm, feed_forward_sub_norm, experts_norm, post_experts_norm,
      post_shared_norm;
  ggml_tensor *qkv = nullptr, *q = nullptr, *k = nullptr, *v = nullptr, *attention_output = nullptr;
  ggml_tensor* attention_gate = nullptr;
  // Recurrent layers; their out is attention_output, or beside attention recurrent_out. a is decay, d is skip, [1,
  // heads]. Delta rule: z, b and t are products of their own, or b and t are one, by group.
  ggml_tensor *recurrent_in = nullptr, *convolution = nullptr, *convolution_bias = nullptr, *time_bias = nullptr;
  ggml_tensor *decay = nullptr, *skip = nullptr, *recurrent_out = nullptr;
  ggml_tensor *recurrent_gate = nullptr, *beta = nullptr, *time = nullptr, *beta_time = nullptr;
  NormWeights gated_norm = {};
  // Latent attention: products from the latents, and per head [key, rank, heads] and [rank, value, heads].
  ggml_tensor *query_latent = nullptr, *latent = nullptr, *keys_values = nullptr;
  ggml_tensor *absorbed_keys = nullptr, *absorbed_values = nullptr;
  ggml_tensor *qkv_bias = nullptr, *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr, *attention_bias = nullptr;
  // Of all experts, in a mixture; up is both if they are in one (Hyperparameters::gate_up_in_one).
  ggml_tensor *gate = nullptr, *up = nullptr, *down = nullptr;
  ggml_tensor *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
  ggml_tensor *router = nullptr, *router_bias = nullptr, *selection_bias = nullptr;  // the experts of a token
  ggml_tensor *shared_gate = nullptr, *shared_up = nullptr, *shared_down = nullptr;  // of the experts of all tokens
  ggml_tensor* shared_router = nullptr;
  ggml_tensor *adjugate_gate = nullptr, *adjugate_up = nullptr, *adjugate_down = nullptr;  // of all groups of experts
  ggml_tensor *router_scale = nullptr, *expert_scales = nullptr, *layer_scale = nullptr;
  // AltUp's router, predictions and corrections; Laurel; the layer's own embedding.
  ggml_tensor *altup_router = nullptr, *altup_predict = nullptr, *altup_correct = nullptr, *altup_scale = nullptr;
  ggml_tensor *laurel_in = nullptr, *laurel_out = nullptr, *per_layer_gate = nullptr, *per_layer_out = nullptr;
  NormWeights altup_norm = {}, laurel_norm = {}, per_layer_norm = {};
  ggml_tensor *latent_down = nullptr, *latent_up = nullptr;  // before and after the chosen experts
};

struct Weights {
  std::vector<LayerWeights> layers;
  NormWeights embedding_norm, output_norm;
  ggml_tensor* output = nullptr;  // the embedding if the file has no output matrix (tied)
  ggml_tensor* output_bias = nullptr;
  // All layers' embeddings from the model's. AltUp: the other inputs of the residual stream from the first, and back.
  ggml_tensor *per_layer_projection = nullptr, *altup_in = nullptr, *altup_out = nullptr;
  NormWeights per_layer_norm = {};
  std::vector<ggml_backend_dev_t> devices;  // of ModelOptions::device
  std::vector<int> device_of;               // [layers + 1]: the device of each layer, and of the output
  ggml_backend_dev_t device = nullptr;      // the first
  bool stock_operators = false;             // the portable path: on other devices, and with ModelOptions::portable
  std::size_t repacked_bytes = 0;           // of matrices that ggml repacked
  std::size_t panel_bytes = 0;              // of matrices in panels
  // The panels of a matrix; nullptr: not in panels. The tensor of a matrix in panels has a shape, but no data.
  const Panels* panels_of(const ggml_tensor* matrix) const;

  void embedding_row(TokenId token, float* out) const;  // [width]
  void per_layer_row(TokenId token, float* out) const;  // [layers * per_layer]
  void position_row(int position, float* out) const;    // [width], of learned positions

  GgufFile file;  // kept open: embeddings, and on the CPU matrices, are read from it
  const GgufTensor *embedding = nullptr, *positions = nullptr, *per_layer_embedding = nullptr;
  std::vector<ggml_context_ptr> contexts;
  std::vector<DeviceBuffer> buffers;
  AddressRange panel_memory;
  std::unordered_map<const ggml_tensor*, Panels> panels;
};

}  // namespace palimpsest
