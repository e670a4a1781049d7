// Memory of this process as the system counts it.
#pragma once

#include <cstdint>

namespace palimpsest {

// Resident bytes now, and the most there ever were; 0 where the system does not tell. Allocates nothing, so that a
// sampler of memory does not measure itself.
std::int64_t resident_bytes();
std::int64_t resident_bytes_peak();

}  // namespace palimpsest
