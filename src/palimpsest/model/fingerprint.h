// Identifies the model that a scorer or a snapshot belongs to.
#pragma once

#include <cstdint>

#include "palimpsest/model/model.h"

namespace palimpsest {

// A hash of the tensors' names, shapes and first bytes.
std::uint64_t fingerprint(const Model& model);
// The same with the architecture's metadata that the user replaced (rope scaling, ...), which change what a cache
// holds.
std::uint64_t cache_fingerprint(const Model& model);

}  // namespace palimpsest
