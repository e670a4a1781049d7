// Activations as the integer products read them: each group of 32 numbers of a row is rounded to signed bytes with one
// scale. A group is one cache line, so that a product reads one stream a row.
#pragma once

#include <cstddef>
#include <cstdint>

namespace palimpsest {

inline constexpr int kGroup = 32;  // numbers that share a scale

struct alignas(64) ActivationGroup {
  std::int8_t code[kGroup];   // round(x / scale), within [-127, 127]
  float scale;                // max |x| / 127; 0 for a group of zeros
  float negative_total;       // -scale * sum of the codes
  std::int32_t negative_sum;  // -sum of the codes
  std::int32_t half_sums[2];  // -sum of the first and of the last 16 codes
};
static_assert(sizeof(ActivationGroup) == 64);

// `count` numbers, a multiple of kGroup. Each group's result depends on its own 32 numbers alone.
void quantize_activations(const float* x, int count, ActivationGroup* out);

}  // namespace palimpsest
