// Measures memory read bandwidth, the physical limit of decoding.
#pragma once

#include <cstddef>

namespace palimpsest {

// Bytes per second that `threads` threads read together from buffers larger than the caches; the max of a few passes.
// Takes about a third of a second and `bytes` of memory.
double read_bandwidth(int threads, std::size_t bytes = std::size_t{256} << 20);

}  // namespace palimpsest
