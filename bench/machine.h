// The limits of this machine that kernels are judged by, measured beside them.
#pragma once

#include <cstddef>

namespace palimpsest::bench {

// Reads `bytes` (a multiple of 512) with the widest loads that there are; the result keeps the compiler honest.
float read_all(const void* data, std::size_t bytes);

// Fused multiply-adds in registers, in independent chains: `rounds` of them; returns floating-point operations done.
double multiply_add(std::size_t rounds, float* result);

// Copies past the caches (non-temporal stores); addresses and size are multiples of 64.
void stream_copy(void* to, const void* from, std::size_t bytes);

}  // namespace palimpsest::bench
