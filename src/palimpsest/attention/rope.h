// Rotary positions: which pairs turn, how fast, and exact cos/sin tables.
// Angles are computed in double precision from integer positions: a stream of 10^8 tokens does not drift.
#pragma once

#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

enum class RopeKind {
  kNone,   // learned positions, ALiBi, NoPE
  kPairs,  // (2i, 2i+1): GGUF `llama`, GPT-J
  kHalves  // (i, i + dims/2): NeoX, Qwen
};

struct RopeOptions {
  RopeKind kind = RopeKind::kPairs;
  int dims = 0;                // leading dimensions that turn (even, <= head_dim); the rest pass through
  double base = 10000.0;       // theta
  double linear_scale = 1;     // position divisor (rope.scaling.type linear)
  std::vector<float> factors;  // [dims/2] divisor of each frequency (Llama 3: tensor rope_freqs.weight); empty: ones
  // YaRN (arXiv 2309.00071); ext_factor 0 turns it off
  double yarn_ext_factor = 0, yarn_attn_factor = 1, yarn_beta_fast = 32, yarn_beta_slow = 1;
  int original_context = 0;
};

// The angle per position step of each pair and the magnitude that multiplies cos and sin.
class RopeFrequencies {
 public:
  explicit RopeFrequencies(const RopeOptions& options);
  RopeKind kind() const { return kind_; }
  int dims() const { return dims_; }
  int pairs() const { return dims_ / 2; }
  double angle(Position position, int pair) const;  // reduced to [-pi, pi], exact for positions to 2^53
  double magnitude() const { return magnitude_; }
  // Writes [2 * pairs]: cos of every pair, then sin of every pair (times magnitude), for one position.
  void row(Position position, float* cos_sin) const;

 private:
  RopeKind kind_;
  int dims_;
  std::vector<double> frequency_;
  double magnitude_ = 1;
};

}  // namespace palimpsest
