// Instructions that Highway's targets do not tell.
#pragma once

namespace palimpsest {

// 8-bit dot products on 32-byte vectors.
bool has_avx_vnni();

// Tiles of bytes and bf16 (AMX). Linux lends their registers to a process that asks, as the first call does: false if
// the system refuses, or is another.
bool has_amx();

// 8-bit dot products of Arm (sdot).
bool has_neon_dot();

// Products of matrices of bytes of Arm (smmla), beside sdot.
bool has_neon_i8mm();

}  // namespace palimpsest
