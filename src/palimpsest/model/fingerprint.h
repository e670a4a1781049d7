// Identifies the model that a snapshot or a scorer belongs to.
#pragma once

#include <cstdint>

#include "palimpsest/model/model.h"

namespace palimpsest {

// A hash of the tensors' names, shapes and first bytes.
std::uint64_t fingerprint(const Model& model);

}  // namespace palimpsest
