// Fills a cache without running the model.
#pragma once

#include <cstdint>

#include "palimpsest/cache/cache.h"

namespace palimpsest {

// Writes normally distributed numbers (no denormals, no infinities) into every page of the cache.
void fill_pages_with_noise(const Cache& cache, std::uint32_t seed);

}  // namespace palimpsest
