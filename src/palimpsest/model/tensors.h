// The tensors of a family's models: names and shapes, derived from the hyperparameters. Used by the loader, which finds
// them, and by synthetic models, which make them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "palimpsest/model/family.h"
#include "palimpsest/model/hyperparameters.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {

struct TensorSpec {
  enum class Kind {
    kMatrix,   // of a product
    kExperts,  // the matrices of all experts of a layer; also if there is one expert
    kHeads,    // a matrix for each head
    kVector,   // norms, biases: small, f32 on the device
    kNumbers,  // f32 read by the host into Hyperparameters
    kUnused,   // in the file, but not read
    kHostRows  // embeddings: read from the file by the host, row by row
  };
  std::string name;
  std::array<std::int64_t, 3> ne;  // ne[0]: the length of a row
  Kind kind = Kind::kMatrix;
  Presence presence = Presence::kYes;
  ggml_tensor** target = nullptr;  // the member of Weights that points to it
};

// Sizes weights.layers; slots point into `weights`. `packed_qkv`: Q, K and V are one tensor.
std::vector<TensorSpec> tensors_of(const Family& family, const Hyperparameters& hyper, bool packed_qkv,
                                   Weights& weights);

}  // namespace palimpsest
