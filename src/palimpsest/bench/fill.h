// A cache filled without running the model.
#pragma once

#include <cstdint>

#include "palimpsest/cache/cache.h"

namespace palimpsest {

// Writes normally distributed numbers (so: no denormals, no infinities) into every page that the cache holds.
void fill_pages_with_noise(const Cache& cache, std::uint32_t seed);

}  // namespace palimpsest
