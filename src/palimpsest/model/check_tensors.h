// The tensors of a model's file that its graph uses, checked against its metadata.
#pragma once

#include <vector>

#include "palimpsest/model/family.h"
#include "palimpsest/model/hyperparameters.h"
#include "palimpsest/model/tensors.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {

// One tensor that the graph uses.
struct TensorUse {
  const GgufTensor* tensor;
  ggml_tensor** target;
  TensorSpec::Kind kind;

  bool vector() const { return kind == TensorSpec::Kind::kVector; }
  bool experts() const { return kind == TensorSpec::Kind::kExperts; }
  bool heads() const { return kind == TensorSpec::Kind::kHeads; }
};

// Sets the tensors of `weights` that are read by the host, and returns the others. Throws Error for a tensor that is
// missing, unknown, or of another shape or type.
std::vector<TensorUse> check_tensors(Weights& weights, const Family& family, const Hyperparameters& hyper);

// Hyperparameters that are tensors of the file. Requires: check_tensors() accepted it.
std::vector<std::vector<float>> read_sink_logits(const GgufFile& file,
                                                 const Hyperparameters& h);  // [layers][query heads]
std::vector<std::vector<float>> read_query_factors(const GgufFile& file,
                                                   const Hyperparameters& h);  // [layers][key width]

}  // namespace palimpsest
