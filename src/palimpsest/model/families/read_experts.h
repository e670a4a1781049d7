#pragma once

#include "palimpsest/model/family.h"

namespace palimpsest {

// Reads the keys of mixtures as DeepSeek has them: first layers without, experts that all tokens use, groups, the
// weights' norm and scale. `routing`: of files that do not name one. Throws Error.
void read_experts(const ArchMetadata& keys, Hyperparameters& h, Routing routing);

// The first layers without experts, by the file's tensors, and windows of some layers, which have their own rotary base
// (rope.freq_base_swa). Throws Error.
void read_dense_layers_and_windows(const ArchMetadata& keys, Hyperparameters& h);

}  // namespace palimpsest
