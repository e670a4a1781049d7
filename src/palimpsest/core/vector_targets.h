// The instruction sets of vector code: SSE2 (the x86-64 baseline), AVX2 and AVX-512; the ones between gain nothing. On
// Arm: NEON without extensions; scalable vectors are disabled. Include it before any Highway header; a file with other
// targets includes it again at its end, for the files that follow in a unity build.

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS                                                                                    \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_NEON | HWY_NEON_BF16 | \
   HWY_ALL_SVE | HWY_RVV)
