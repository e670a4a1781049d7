// RoPE: pairs, frequencies and tables of cosines and sines. Angles are computed in double precision from integer
// positions: a stream of 10^8 tokens does not drift.
#pragma once

#include <vector>

#include "palimpsest/core/rope_options.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

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
