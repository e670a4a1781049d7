// Puts a model's tensors where the device wants them:
//
//   embedding rows   read in the file, one row a token, by the host
//   vectors          (norms, biases) copied to f32 on the device
//   matrices         CPU: used where they lie in the mapped file, or re-laid by ggml for this CPU; else uploaded
#pragma once

#include <memory>

#include "palimpsest/core/gguf_file.h"
#include "palimpsest/model/family.h"
#include "palimpsest/model/hyperparameters.h"
#include "palimpsest/model/model_options.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {

// Checks every tensor that the family needs, and that the file has no other; places them on the device. Fills
// parameters and weight_bytes of `hyper`. Throws Error.
std::unique_ptr<Weights> load_weights(GgufFile file, const Family& family, const ModelOptions& options,
                                      Hyperparameters& hyper);

}  // namespace palimpsest
