#pragma once

#include "palimpsest/model/family.h"

namespace palimpsest {

// Reads the keys of mixtures as DeepSeek has them: first layers without, experts that all tokens use, groups, the
// weights' norm and scale. `routing`: of files that do not name one. Throws Error.
void read_experts(const ArchMetadata& keys, Hyperparameters& h, Routing routing);

}  // namespace palimpsest
