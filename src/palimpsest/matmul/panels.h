// A matrix of weights, repacked for the vectors of x86 CPUs with AVX2 or AVX-512.
//
//   y[token][row] = sum over k of weight[row][k] * x[token][k]
//
// A panel holds 16 interleaved rows: one vector register holds, of each, as many consecutive columns as one instruction
// multiplies. Panels replace the GGUF tensor and are as large (Q4_K, Q5_K, IQ4_XS: up to 3% larger, their
// 6-bit scales become bytes).
//
// The arithmetic is the same for any number of tokens. Quantized weights: activations rounded per group of 32, exact
// integer sums within a group, and one float accumulator per result, to which groups are added in ascending order.
// Floats: sums of 64 columns each (tiles of bf16: 256), added in ascending order; activations are f32, or bf16 with
// bf16 weights on CPUs with bf16 products. So a token's result depends neither on other tokens in the batch nor on the
// threads; and of all types but bf16, nor on the CPU.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "palimpsest/core/workers.h"
#include "palimpsest/matmul/panel_kernel.h"

namespace palimpsest {

struct PanelType;

// The types of weights that have panels on this CPU, and what computes their products, for users.
struct ProductKernel {
  const char *type, *name;
};
std::vector<ProductKernel> product_kernels();

class Panels {
 public:
  static constexpr int kRows = 16;  // per panel

  // Whether this CPU has kernels for matrices of this type and shape.
  static bool supports(ggml_type type, std::int64_t rows, std::int64_t columns);
  // Memory for a matrix that is supported; a multiple of 64.
  static std::size_t bytes_of(ggml_type type, std::int64_t rows, std::int64_t columns);
  // `data`: rows in GGUF's layout, not used after the call. Requires supports(...). `memory`: bytes_of(...) bytes,
  // aligned to 64, which outlive the panels; nullptr: memory of their own. Throws Error if there is none.
  Panels(ggml_type type, std::int64_t rows, std::int64_t columns, const std::byte* data, Workers* workers = nullptr,
         std::byte* memory = nullptr);

  int rows() const { return rows_; }
  int columns() const { return columns_; }
  int panels() const { return (rows_ + kRows - 1) / kRows; }  // the last may have fewer rows
  std::size_t bytes() const;
  void dequantize_row(int row, float* out) const;  // [columns], equal to ggml's to_float

  // The form of activations that `multiply` reads.
  ActivationForm form() const { return kernel_.form; }
  // Writes `count` numbers, a multiple of kGroup, in this form. A group's result depends only on its own numbers.
  void convert(const float* x, int count, std::byte* out) const { kernel_.convert(x, count, out); }
  // From one row of activations to the next: an odd number of groups, because rows whose distance is a power of two
  // have the same place in the caches.
  std::size_t activation_stride() const {
    return static_cast<std::size_t>(columns_ / kGroup | 1) * group_bytes(form());
  }
  // Multiplies the panels [first, last) with `tokens` rows of activations, aligned to 64 bytes:
  // y[token * y_stride + row - kRows * first].
  void multiply(int first, int last, const std::byte* x, int tokens, float* y, std::int64_t y_stride) const;

 private:
  void multiply_whole(int first, int last, const std::byte* x, int tokens, float* y, std::int64_t y_stride) const;
  int blocks() const;
  std::size_t panel_bytes() const;
  void pack_panel(int panel, const std::byte* data);

  using Memory = std::unique_ptr<std::byte[], void (*)(std::byte*)>;
  const PanelType* type_;
  PanelKernel kernel_;
  int rows_, columns_;
  Memory data_;
};

}  // namespace palimpsest
