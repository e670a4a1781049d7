// All formats. A new one needs a file in this folder, a row of PALIMPSEST_CACHE_TYPES (core/types.h), and its vector
// kernels (attention/kernels_*.cpp).
#pragma once

#include <array>
#include <cstddef>

#include "palimpsest/cache/formats/bf16.h"
#include "palimpsest/cache/formats/f16.h"
#include "palimpsest/cache/formats/f32.h"
#include "palimpsest/cache/formats/q3.h"
#include "palimpsest/cache/formats/q4.h"
#include "palimpsest/cache/formats/q8_0.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

#define PALIMPSEST_TYPE(enumerator, name) name::kFormat,
inline constexpr std::array kKvFormats = {PALIMPSEST_CACHE_TYPES(PALIMPSEST_TYPE)};
#undef PALIMPSEST_TYPE

inline constexpr const KvFormat& kv_format(CacheType type) {
  return kKvFormats[static_cast<std::size_t>(type)];
}

}  // namespace palimpsest
