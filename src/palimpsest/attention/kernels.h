// The kernels of one cache type, compiled once per instruction set; the best that this machine has is chosen at run
// time. One small file for each type (kernels_f16.cpp ...), so that they compile side by side. Internal.
//
// Include it before anything of Highway: three sets on x86-64, SSE2 (what every machine has), AVX2 and AVX-512. The
// ones between bring nothing here. On Arm: NEON; vectors of unknown length are left out.
#pragma once

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_ALL_SVE | HWY_RVV)

#include "palimpsest/attention/work.h"

namespace palimpsest {

struct Kernels {  // as the functions of work.h
  void (*insert_tokens)(const HeadWork& work, int unit, const UnitMemory& memory);
  void (*rotate_keys)(const HeadWork& work, int unit, const UnitMemory& memory);
  void (*attend_unit)(const HeadWork& work, int query_block, int split, const UnitMemory& memory);
  void (*weights_unit)(const HeadWork& work, int unit, const UnitMemory& memory);
};

const Kernels& f32_kernels();
const Kernels& f16_kernels();
const Kernels& bf16_kernels();
const Kernels& q8_0_kernels();

}  // namespace palimpsest
