// All formats. A new one needs a file in this folder, a line here and in CacheType, and its vector kernels
// (attention/kernels_*.cpp).
#pragma once

#include <array>
#include <cstddef>

#include "palimpsest/cache/formats/bf16.h"
#include "palimpsest/cache/formats/f16.h"
#include "palimpsest/cache/formats/f32.h"
#include "palimpsest/cache/formats/q8_0.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

inline constexpr std::array kKvFormats = {f32::kFormat, f16::kFormat, bf16::kFormat,
                                          q8_0::kFormat};  // in the order of CacheType

inline constexpr const KvFormat& kv_format(CacheType type) {
  return kKvFormats[static_cast<std::size_t>(type)];
}

}  // namespace palimpsest
