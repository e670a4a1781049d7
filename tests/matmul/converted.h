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
      : columns_(static_cast<std::size_t>(weights.columns())),
        stride_(weights.activation_stride()),
        form_(weights.form()),
        lines_(x.size() / columns_ * stride_ / sizeof(ActivationGroup)) {
    for (std::size_t t = 0; t < x.size() / columns_; ++t)
      weights.convert(&x[t * columns_], weights.columns(), const_cast<std::byte*>(row(t)));
  }
  const std::byte* row(std::size_t token = 0) const {
    return reinterpret_cast<const std::byte*>(lines_.data()) + token * stride_;
  }
  // A number as the kernels read it.
  double value(std::size_t token, std::size_t column) const {
    const std::byte* const group = row(token) + column / kGroup * group_bytes(form_);
    const std::size_t i = column % kGroup;
    if (form_ == ActivationForm::kIntegers) {
      const auto& g = *reinterpret_cast<const ActivationGroup*>(group);
      return static_cast<double>(g.scale) * g.code[i];
    }
    float x;
    if (form_ == ActivationForm::kF32) {
      std::memcpy(&x, group + i * sizeof x, sizeof x);
      return x;
    }
    ggml_bf16_t half;
    std::memcpy(&half, group + i * sizeof half, sizeof half);
    return ggml_bf16_to_fp32(half);
  }

 private:
  std::size_t columns_, stride_;
  ActivationForm form_;
  std::vector<ActivationGroup> lines_;  // lines of 64 bytes
};

}  // namespace palimpsest::testing
