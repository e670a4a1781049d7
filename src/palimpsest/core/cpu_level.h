// PALIMPSEST_SIMD=AVX2: the program runs as on a lesser CPU. For tests and for comparisons of CPUs.
#pragma once

#include <string>
#include <string_view>

namespace palimpsest {

// Limits the kernels to the level of PALIMPSEST_SIMD, one of Highway's names: SSE4, AVX2, AVX3 (AVX-512 without VNNI),
// AVX3_DL (with VNNI), ... Call it before the first kernel runs. Throws Error for a level that this CPU does not have.
// ggml's kernels are limited when its backends are loaded (model/backend.h).
void limit_cpu_level();

// The level of PALIMPSEST_SIMD; empty: not limited.
std::string_view cpu_level_limit();

// The best level that kernels use now.
std::string cpu_level();

// The levels of this CPU, best first: "AVX3_ZEN4, AVX3_DL, AVX3, AVX2, ...".
std::string cpu_levels();

}  // namespace palimpsest
