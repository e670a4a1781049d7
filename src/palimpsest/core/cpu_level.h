// PALIMPSEST_SIMD=AVX2: the program runs as on a lesser CPU. For tests and for comparisons of CPUs.
#pragma once

#include <string>
#include <string_view>

namespace palimpsest {

// Limits the kernels to the level of PALIMPSEST_SIMD, one of Highway's names: SSE4, AVX2, AVX3 (AVX-512 without VNNI),
// AVX3_DL (with VNNI), ... or one of two more: AVX2_VNNI (AVX2 with 8-bit dot products, AVX-VNNI) and AMX (the best
// level, with tiles of bytes and bf16). On Arm: NEON, NEON_DOT (with 8-bit dot products), NEON_I8MM (also with
// products of matrices). Call it before the first kernel runs. Throws Error for a level that this CPU does not have.
// ggml's kernels are limited when its backends are loaded (model/backend.h).
void limit_cpu_level();

// The level of PALIMPSEST_SIMD; empty: not limited.
std::string_view cpu_level_limit();

// Whether this CPU, its system and PALIMPSEST_SIMD allow 8-bit dot products on 32-byte vectors, or tiles. The first
// call of may_use_amx asks the system for tiles, for all threads of this process.
bool may_use_avx_vnni();
bool may_use_amx();
bool may_use_neon_dot();
bool may_use_neon_i8mm();

// The best level that kernels use now.
std::string cpu_level();

// The levels of this CPU, best first: "AMX, AVX3_SPR, AVX3_DL, AVX3, AVX2_VNNI, AVX2, ...".
std::string cpu_levels();

}  // namespace palimpsest
