// A matrix of quantised weights, repacked for integer products on CPUs with 8-bit dot products (AVX-512 VNNI).
//
//   y[token][row] = sum over k of weight[row][k] * x[token][k]
//
// A panel holds 16 rows side by side: one vector register holds 4 consecutive codes of each, as the dot product wants
// them. Panels are as large as the GGUF tensor (Q4_K, Q5_K: 3% larger, their 6-bit scales become bytes), and replace
// it.
//
// The arithmetic is one and the same for any number of tokens: activations rounded per group of 32, exact integer sums
// within a group, and one float accumulator a result, to which groups are added in ascending order. So a token's result
// depends neither on the tokens beside it nor on the threads.
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
  static constexpr int kRows = 16;  // of a panel

  // Whether this CPU has the kernels, and they know matrices of this type and shape.
  static bool supports(ggml_type type, std::int64_t rows, std::int64_t columns);
  // `data`: rows as GGUF stores them; not needed any more afterwards. Only if supports(...). Throws Error when there is
  // no memory.
  Panels(ggml_type type, std::int64_t rows, std::int64_t columns, const std::byte* data);

  int rows() const { return rows_; }
  int columns() const { return columns_; }
  int panels() const { return rows_ / kRows; }
  std::size_t bytes() const;
  void dequantize_row(int row, float* out) const;  // [columns], as ggml's own to_float

  // Results of the panels [first, last) for `tokens` rows of activations, which follow each other without a gap:
  // y[token * y_stride + row].
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
