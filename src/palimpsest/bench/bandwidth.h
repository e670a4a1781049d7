// The physical limit of decoding: how fast this machine reads memory.
#pragma once

#include <cstddef>

namespace palimpsest {

// Bytes a second that `threads` threads read together from buffers too large for the caches: the best of a few passes.
// Takes about a third of a second and `bytes` of memory.
double read_bandwidth(int threads, std::size_t bytes = std::size_t{256} << 20);

}  // namespace palimpsest
