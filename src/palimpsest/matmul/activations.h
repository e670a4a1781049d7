// Activations in the forms that the kernels read. They are converted in groups of 32 numbers of a row.
#pragma once

#include <cstddef>
#include <cstdint>

namespace palimpsest {

inline constexpr int kGroup = 32;  // numbers that are converted together

enum class ActivationForm : std::uint8_t { kIntegers, kBf16, kF32 };

constexpr std::size_t group_bytes(ActivationForm form) {
  return form == ActivationForm::kF32 ? 128 : 64;
}

// A group of integers: signed bytes with one scale, in one cache line, so that a kernel reads one stream per row.
struct alignas(64) ActivationGroup {
  std::int8_t code[kGroup];  // round(x / scale), within [-127, 127]
  float scale;               // max |x| / 127; 0 for a group of zeros; NaN, with codes 0, if a number is not finite
  float negative_total;      // -scale * sum of the codes
  // -offset * sum of the codes, for codes of weights with that offset; 32: of the first and of the last 16 codes
  std::int32_t offset_8, offset_128;
  std::int32_t half_offset_32[2];
};
static_assert(sizeof(ActivationGroup) == group_bytes(ActivationForm::kIntegers));

}  // namespace palimpsest
