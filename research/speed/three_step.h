// Column sums of a prompt's attention without a fused kernel: score matrix, softmax, sum of columns. Uses ggml's matrix
// product and softmax, and a plain loop for the sums. One query head at a time, so that the matrix fits into memory.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>

#include <vector>

#include "research/speed/team.h"

namespace palimpsest::bench {

class ThreeStep {
 public:
  ThreeStep(int tokens, int head_dim, int threads);
  void run_head(Team& team);  // computes the sums of one query head over all queries
  const std::vector<float>& sums() const { return sums_; }

 private:
  int tokens_;
  ggml_context_ptr context_;
  ggml_backend_ptr backend_;
  ggml_backend_buffer_ptr buffer_;
  ggml_tensor* weights_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  std::vector<float> sums_;
};

}  // namespace palimpsest::bench
