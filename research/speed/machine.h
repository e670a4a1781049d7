// Measures this machine's limits, against which kernels are compared.
#pragma once

#include <cstddef>

namespace palimpsest::bench {

// Reads `bytes` (a multiple of 512) with the widest vector loads; the result prevents removal by the compiler.
float read_all(const void* data, std::size_t bytes);

// Runs `rounds` of fused multiply-adds in registers, in independent chains; returns the floating-point operations.
double multiply_add(std::size_t rounds, float* result);

// Copies with non-temporal stores; addresses and size are multiples of 64.
void stream_copy(void* to, const void* from, std::size_t bytes);

}  // namespace palimpsest::bench
