// Loads a model's tensors onto the device:
//
//   embedding rows   read from the file by the host, one row per token
//   vectors          (norms, biases) copied to the device as f32
//   matrices         CPU: used in place in the mapped file, or repacked by ggml for this CPU; else uploaded
#pragma once

#include <memory>

#include "palimpsest/core/gguf_file.h"
#include "palimpsest/model/family.h"
#include "palimpsest/model/hyperparameters.h"
#include "palimpsest/model/model_options.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {

// Checks that the file has every tensor that the family needs, and no other; loads them. Fills parameters and
// weight_bytes of `hyper`. Throws Error.
std::unique_ptr<Weights> load_weights(GgufFile file, const Family& family, const ModelOptions& options,
                                      Hyperparameters& hyper);

}  // namespace palimpsest
