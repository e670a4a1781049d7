// Models of random weights in a real model's shape: for speed, which does not depend on the values, and as small
// models of every family for tests. Made as a GGUF image, in memory or in a file, so that they are loaded as any other.
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
  // [layers] in place of query_heads, kv_heads and feed_forward, where layers differ; empty: they are alike.
  std::vector<int> query_heads_of = {}, kv_heads_of = {}, feed_forward_of = {};
  int context = 4096;
  int experts = 0, experts_used = 0, expert_feed_forward = 0;  // 0 experts: dense
  bool tied = true;
  bool apart_qkv = false;              // Q, K and V are three tensors, also in a family whose files usually pack them
  bool optional_tensors = false;       // those that the family's models may have
  std::vector<std::string> omit = {};  // but for those with one of these in their names
  ggml_type type = GGML_TYPE_F32;      // of the matrices
  std::uint64_t seed = 1;

  int rope_dims = -1;  // leading dimensions of a head that turn; -1: all, 0: no rotary positions
  double rope_base = 10000;
  std::string rope_scaling = {};  // "", "linear", "yarn"
  double rope_factor = 1;         // of linear and yarn
  int original_context = 0;       // of yarn and llama3_factors
  bool llama3_factors = false;    // rope_freqs.weight as Llama 3.1 computes it
  bool long_factors = false;      // rope_factors_long and _short.weight, random
  std::vector<ExtraKey> keys = {};
};

ggml_type parse_weight_type(std::string_view text);  // "q4_0"; throws Error that lists the types

// The shapes with names: real models' (shapes.json), and of every family the smallest with all of its features,
// "tiny-gemma2".
const std::map<std::string, SyntheticShape, std::less<>>& synthetic_shapes();
// "llama-3.2-1b", "llama-3.2-1b@layers=4@type=q4_0@vocab=32000": a known name, then any of layers, type, vocab,
// context, rope, seed. Throws Error that lists the known names, or says what a setting can be.
SyntheticShape parse_synthetic(std::string_view text);
std::string synthetic_names();  // "llama-2-7b, llama-3.2-1b, ..., and tiny-ARCHITECTURE for each of ..."

GgufFile make_synthetic(const SyntheticShape& shape);                        // in memory
void write_synthetic(const SyntheticShape& shape, const std::string& path);  // with a vocabulary; throws Error

}  // namespace palimpsest
