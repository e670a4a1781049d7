// The functions that multiply panels of one type on this CPU, and convert activations for it. Internal.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>

#include "palimpsest/matmul/activations.h"

// The targets of kernels: AVX2 and better, and Arm's NEON.
#define PALIMPSEST_HAS_PANELS (HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64)

namespace palimpsest {

// Multiplies consecutive panels: y[t * y_stride + 16 * panel + row] for `tokens` rows of activations, x_stride groups
// apart.
using MultiplyPanels = void (*)(const std::byte* panel, int panels, int blocks, const std::byte* x,
                                std::int64_t x_stride, int tokens, float* y, std::int64_t y_stride);
// Writes `count` numbers, a multiple of kGroup, as activations. A group's result depends only on its own numbers.
using ConvertActivations = void (*)(const float* x, int count, std::byte* out);

struct PanelKernel {
  MultiplyPanels multiply = nullptr;  // nullptr: not on this CPU
  ConvertActivations convert = nullptr;
  ActivationForm form = ActivationForm::kIntegers;
  const char* name = "";  // of its products, for users
  int tokens = 12;        // multiplied together: more are best a multiple of it
};
PanelKernel integer_kernel(ggml_type type);
PanelKernel float_kernel(ggml_type type);

}  // namespace palimpsest
