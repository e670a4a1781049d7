// Least squares of one linear map with a ridge: the sums over its samples from which the weights follow, so that no
// sample is kept. Sums of several texts add up, and can be saved between them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "palimpsest/core/byte_stream.h"

namespace palimpsest {

class NormalEquations {
 public:
  explicit NormalEquations(std::size_t inputs = 0)
      : inputs_(inputs), squares_(inputs * (inputs + 1) / 2), products_(inputs) {}

  // A block of samples. `columns`: input by input, [inputs][samples]; `target`: [samples]. Sums of a block are in f32:
  // give some hundred samples at most.
  void add(std::span<const float> columns, std::span<const float> target);
  // The weights, [inputs]; zeros without samples. `ridge`: as a share of the inputs' mean square. Throws Error: inputs
  // that are not numbers, or, without a ridge, that depend on each other.
  std::vector<float> solve(double ridge) const;

  std::size_t inputs() const { return inputs_; }
  void save(ByteWriter& out) const;
  void load(ByteReader& in);  // of as many inputs; throws Error

 private:
  std::size_t inputs_;
  std::vector<double> squares_;   // the lower triangle, row by row
  std::vector<double> products_;  // of each input with the target
};

}  // namespace palimpsest
