// The numbers of a model, read from GGUF metadata and checked against each other and against the tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "palimpsest/attention/rope.h"

namespace palimpsest {

struct Hyperparameters {
  std::string architecture;  // GGUF general.architecture
  std::string name;          // general.name, or the synthetic shape
  int vocabulary = 0, width = 0, layers = 0, feed_forward = 0;
  int query_heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  int trained_context = 0;
  float norm_epsilon = 1e-5F;
  float attention_scale = 0;  // 1/sqrt(head_dim) unless the model says otherwise
  RopeOptions rope;
  std::vector<float> alibi;           // [query_heads] slopes; empty: no ALiBi
  float attention_soft_cap = 0;       // scores become cap * tanh(score / cap); 0: they stay
  std::vector<std::int32_t> windows;  // [layers] tokens that a query of the layer sees, itself included; INT32_MAX: all
  std::size_t parameters = 0, weight_bytes = 0;
};

class GgufFile;
struct Family;

// Throws Error for a key that is missing, mistyped, out of range or at odds with another or with the embedding's shape.
Hyperparameters read_hyperparameters(const GgufFile& file, const Family& family);

}  // namespace palimpsest
