// Quantized activations for the integer kernels: each group of 32 numbers of a row becomes signed bytes with one scale.
// A group is one cache line, so a kernel reads one stream per row.
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

// `count` is a multiple of kGroup. A group's result depends only on its own 32 numbers.
void quantize_activations(const float* x, int count, ActivationGroup* out);

}  // namespace palimpsest
