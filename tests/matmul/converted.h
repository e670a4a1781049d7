// Activations for a product, in memory of its alignment.
#pragma once

#include <ggml.h>

#include <cstring>
#include <span>
#include <vector>

#include "palimpsest/matmul/panels.h"

namespace palimpsest::testing {

class Converted {
 public:
  Converted(const Panels& weights, std::span<const float> x)
      : form_(weights.form()), lines_(x.size() / kGroup * group_bytes(form_) / sizeof(ActivationGroup)) {
    weights.convert(x.data(), static_cast<int>(x.size()), reinterpret_cast<std::byte*>(lines_.data()));
  }
  // The group of number `first`.
  const std::byte* at(std::size_t first = 0) const {
    return reinterpret_cast<const std::byte*>(lines_.data()) + first / kGroup * group_bytes(form_);
  }
  // Number `i` as the kernels read it.
  double value(std::size_t i) const {
    const std::byte* const number = at(i);
    if (form_ == ActivationForm::kIntegers) {
      const ActivationGroup& g = lines_[i / kGroup];
      return static_cast<double>(g.scale) * g.code[i % kGroup];
    }
    float x;
    if (form_ == ActivationForm::kF32) {
      std::memcpy(&x, number + i % kGroup * sizeof(float), sizeof(float));
      return x;
    }
    ggml_bf16_t half;
    std::memcpy(&half, number + i % kGroup * sizeof half, sizeof half);
    return ggml_bf16_to_fp32(half);
  }

 private:
  ActivationForm form_;
  std::vector<ActivationGroup> lines_;  // lines of 64 bytes
};

}  // namespace palimpsest::testing
