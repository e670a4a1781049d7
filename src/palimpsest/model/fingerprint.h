// Which model a file beside it belongs to: snapshots, scorers.
#pragma once

#include <cstdint>

#include "palimpsest/model/model.h"

namespace palimpsest {

// Of the model's file: names and shapes of its tensors, and the first bytes of each.
std::uint64_t fingerprint(const Model& model);

}  // namespace palimpsest
