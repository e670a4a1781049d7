// A model's parameters of rotary positions; core/rope.h computes the rotations.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

namespace palimpsest {

enum class RopeKind {
  kNone,   // learned positions, ALiBi, NoPE
  kPairs,  // (2i, 2i+1): GGUF `llama`, GPT-J
  kHalves  // (i, i + dims/2): NeoX, Qwen
};

struct RopeOptions {
  RopeKind kind = RopeKind::kPairs;
  int dims = 0;                // leading dimensions that are rotated (even, <= head_dim); the rest pass through
  double base = 10000.0;       // theta
  double linear_scale = 1;     // position divisor (rope.scaling.type linear)
  std::vector<float> factors;  // [dims/2] divisor of each frequency (Llama 3: tensor rope_freqs.weight); empty: ones
  // YaRN (arXiv 2309.00071); ext_factor 0: off
  double yarn_ext_factor = 0, yarn_attn_factor = 1, yarn_beta_fast = 32, yarn_beta_slow = 1;
  int original_context = 0;

  bool operator==(const RopeOptions&) const = default;
  // The same dimensions, not rotated: layers without positions (NoPE) beside others.
  static RopeOptions unrotated(const RopeOptions& like) {
    RopeOptions out;
    out.kind = like.kind;
    out.dims = like.dims;
    out.linear_scale = std::numeric_limits<double>::infinity();
    return out;
  }
  // The same dimensions and base, without scaling.
  static RopeOptions unscaled(const RopeOptions& like) {
    RopeOptions out;
    out.kind = like.kind;
    out.dims = like.dims;
    out.base = like.base;
    return out;
  }
  bool is_unrotated() const { return std::isinf(linear_scale); }
};

}  // namespace palimpsest
