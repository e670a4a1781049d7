// Models with random weights: in real models' shapes for benchmarks (speed does not depend on the values), and small
// ones of every family for tests. Made as GGUF, in memory or in a file, and loaded as any other model.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/gguf_file.h"
#include "palimpsest/model/family.h"

namespace palimpsest {

struct SyntheticShape {
  std::string name = "tiny", architecture = "llama";
  int vocabulary = 512, width = 256, layers = 2, feed_forward = 512;
  int query_heads = 8, kv_heads = 4, head_dim = 32;
  // [layers] replace query_heads, kv_heads and feed_forward if layers differ; empty: layers are equal.
  std::vector<int> query_heads_of = {}, kv_heads_of = {}, feed_forward_of = {};
  int value_dim = 0;  // 0: head_dim
  LatentAttention latent = {};
  int convolution_taps = 0;  // TinyShape
  StateHeads state_heads = {};
  int attention_interval = 0;
  int context = 4096;
  int experts = 0, experts_used = 0, expert_feed_forward = 0, shared_feed_forward = 0,
      leading_dense = 0;  // 0 experts: dense
  int expert_latent = 0, adjugate_group = 0, adjugate_feed_forward = 0;
  bool delta_in_one = false;
  bool second_norm = false;  // Hyperparameters::second_norm
  int expert_interval = 1;   // the last layer of each so many has a mixture
  bool gate_up_in_one = false;
  int window_head_dim = 0, window_period = 0, own_kv_layers = 0, per_layer = 0;  // TinyShape
  double rope_share = 1;
  bool tied = true;
  bool optional_tensors = false;                  // includes the family's optional tensors
  std::vector<std::string> omit = {};             // but not those whose names contain one of these
  ggml_type type = GGML_TYPE_F32;                 // of the matrices
  std::map<std::string, ggml_type> type_of = {};  // of those whose names contain the key, instead
  std::uint64_t seed = 1;

  int rope_dims = -1;  // leading rotary dimensions of a head; -1: all, 0: no rotary positions
  double rope_base = 10000;
  std::string rope_scaling = {};  // "", "linear", "yarn"
  double rope_factor = 1;         // of linear and yarn
  int original_context = 0;       // of yarn and llama3_factors
  bool llama3_factors = false;    // rope_freqs.weight as Llama 3.1 computes it
  bool long_factors = false;      // rope_factors_long and _short.weight, random
  std::vector<ExtraKey> keys = {};
};

ggml_type parse_weight_type(std::string_view text);  // "q4_0"; throws Error that lists the types

// The named shapes: real models (shapes.json), and for every family the smallest one with all its features, as
// "tiny-gemma2".
const std::map<std::string, SyntheticShape, std::less<>>& synthetic_shapes();
// "llama-3.2-1b", "llama-3.2-1b@layers=4@type=q4_0@vocab=32000": a known name, then any of layers, type, vocab,
// context, rope, seed. Throws Error that lists the known names or the valid values.
SyntheticShape parse_synthetic(std::string_view text);
std::string synthetic_names();  // "llama-2-7b, llama-3.2-1b, ..., and tiny-ARCHITECTURE for each of ..."

GgufFile make_synthetic(const SyntheticShape& shape);                        // in memory
void write_synthetic(const SyntheticShape& shape, const std::string& path);  // with a vocabulary; throws Error

}  // namespace palimpsest
