// How column sums of a prompt's attention are had without a kernel for them: scores as a matrix, softmax over it, sum
// of its columns. ggml's matrix product and softmax do the first two, a plain loop the third. One query head at a time,
// so that the matrix fits.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>

#include <vector>

#include "bench/team.h"

namespace palimpsest::bench {

class ThreeStep {
 public:
  ThreeStep(int tokens, int head_dim, int threads);
  void run_head(Team& team);  // the sums of one query head, all queries
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
