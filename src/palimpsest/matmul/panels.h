// A matrix of quantized weights, repacked for CPUs with 8-bit dot products (AVX-512 VNNI).
//
//   y[token][row] = sum over k of weight[row][k] * x[token][k]
//
// A panel holds 16 interleaved rows: one vector register holds 4 consecutive codes of each, as the dot product needs.
// Panels replace the GGUF tensor and are as large (Q4_K, Q5_K: 3% larger, their 6-bit scales become bytes).
//
// The arithmetic is the same for any number of tokens: activations rounded per group of 32, exact integer sums within a
// group, and one float accumulator per result, to which groups are added in ascending order. So a token's result
// depends neither on other tokens in the batch nor on the threads.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "palimpsest/matmul/activations.h"

namespace palimpsest {

struct PanelType;

class Panels {
 public:
  static constexpr int kRows = 16;  // per panel

  // Whether this CPU has kernels for matrices of this type and shape.
  static bool supports(ggml_type type, std::int64_t rows, std::int64_t columns);
  // `data`: rows in GGUF's layout, not used after the call. Requires supports(...). Throws Error if there is no memory.
  Panels(ggml_type type, std::int64_t rows, std::int64_t columns, const std::byte* data);

  int rows() const { return rows_; }
  int columns() const { return columns_; }
  int panels() const { return rows_ / kRows; }
  std::size_t bytes() const;
  void dequantize_row(int row, float* out) const;  // [columns], equal to ggml's to_float

  // Multiplies the panels [first, last) with `tokens` contiguous rows of activations:
  // y[token * y_stride + row - kRows * first].
  void multiply(int first, int last, const ActivationGroup* x, int tokens, float* y, std::int64_t y_stride) const;

 private:
  int blocks() const;
  std::size_t panel_bytes() const;

  const PanelType* type_;
  void (*kernel_)(const std::byte*, int, const ActivationGroup*, std::int64_t, int, float*, std::int64_t);
  int rows_, columns_;
  std::unique_ptr<std::byte[], void (*)(std::byte*)> data_;
};

}  // namespace palimpsest
