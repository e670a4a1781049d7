#include "palimpsest/matmul/panels.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

#include "palimpsest/core/error.h"
#include "palimpsest/matmul/panel_type.h"

namespace palimpsest {
namespace {

constexpr std::align_val_t kLine{64};

// Bytes of activations that stay in the L2 cache while panels are streamed.
constexpr int kResidentBytes = 512 << 10;

std::byte* take(std::size_t bytes) {
  auto* const out = static_cast<std::byte*>(::operator new[](bytes, kLine, std::nothrow));
  if (out == nullptr) fail("no memory for {} MiB of repacked weights: use a smaller model", bytes >> 20);
  return out;
}

PanelKernel kernel_of(const PanelType& type) {
  return type.scales == ScaleKind::kNone ? float_kernel(type.type) : integer_kernel(type.type);
}

}  // namespace

static_assert(Panels::kRows == kPanelRows);

std::vector<ProductKernel> product_kernels() {
  std::vector<ProductKernel> out;
  for (const PanelType* type : panel_types()) {
    const PanelKernel kernel = kernel_of(*type);
    if (kernel.multiply != nullptr) out.push_back({ggml_type_name(type->type), kernel.name});
  }
  return out;
}

bool Panels::supports(ggml_type type, std::int64_t rows, std::int64_t columns) {
  const PanelType* const panel = find_panel_type(type);
  return panel != nullptr && rows > 0 && rows <= INT32_MAX && columns > 0 && columns % panel->columns == 0 &&
         columns <= INT32_MAX && kernel_of(*panel).multiply != nullptr;
}

std::size_t Panels::bytes_of(ggml_type type, std::int64_t rows, std::int64_t columns) {
  const PanelType& panel = *find_panel_type(type);
  const auto blocks = static_cast<std::size_t>((rows + kRows - 1) / kRows * (columns / panel.columns));
  return (blocks * panel.block_bytes() + 63) / 64 * 64;
}

Panels::Panels(ggml_type type, std::int64_t rows, std::int64_t columns, const std::byte* data, Workers* workers,
               std::byte* memory)
    : type_(find_panel_type(type)),
      kernel_(kernel_of(*type_)),
      rows_(static_cast<int>(rows)),
      columns_(static_cast<int>(columns)),
      data_(memory != nullptr ? Memory(memory, [](std::byte*) {})
                              : Memory(take(bytes()), [](std::byte* p) { ::operator delete[](p, kLine); })) {
  assert(supports(type, rows, columns));
  const auto pack = [&](int panel) { pack_panel(panel, data); };
  if (workers != nullptr) {
    workers->run(panels(), pack);
  } else {
    for (int panel = 0; panel < panels(); ++panel) pack(panel);
  }
}

void Panels::pack_panel(int panel, const std::byte* data) {
  std::byte* const packed = data_.get() + static_cast<std::size_t>(panel) * panel_bytes();
  std::memset(packed, 0, panel_bytes());
  const std::size_t row_bytes = ggml_row_size(type_->type, columns_),
                    block = ggml_row_size(type_->type, type_->columns);
  for (int row = panel * kRows; row < std::min(rows_, (panel + 1) * kRows); ++row) {
    const std::byte* from = data + static_cast<std::size_t>(row) * row_bytes;
    std::byte* to = packed;
    for (int b = 0; b < blocks(); ++b, from += block, to += type_->block_bytes())
      pack_row(*type_, from, row % kRows, to);
  }
}

int Panels::blocks() const {
  return columns_ / type_->columns;
}

std::size_t Panels::panel_bytes() const {
  return static_cast<std::size_t>(blocks()) * type_->block_bytes();
}

std::size_t Panels::bytes() const {
  return static_cast<std::size_t>(panels()) * panel_bytes();
}

void Panels::dequantize_row(int row, float* out) const {
  const std::byte* from = data_.get() + static_cast<std::size_t>(row / kRows) * panel_bytes();
  for (int b = 0; b < blocks(); ++b, from += type_->block_bytes(), out += type_->columns)
    unpack_row(*type_, from, row % kRows, out);
}

void Panels::multiply(int first, int last, const std::byte* x, int tokens, float* y, std::int64_t y_stride) const {
  const int whole = std::min(last, rows_ / kRows);
  if (first < whole) multiply_whole(first, whole, x, tokens, y, y_stride);
  if (whole == last) return;
  constexpr int kTokens = 48;
  alignas(64) float padded[kTokens * kRows];
  for (int t = 0; t < tokens; t += kTokens) {
    const int count = std::min(kTokens, tokens - t);
    multiply_whole(whole, last, x + static_cast<std::size_t>(t) * activation_stride(), count, padded, kRows);
    for (int i = 0; i < count; ++i)
      std::copy_n(padded + i * kRows, rows_ % kRows, y + (t + i) * y_stride + (whole - first) * kRows);
  }
}

// The last panel is written with all its rows.
void Panels::multiply_whole(int first, int last, const std::byte* x, int tokens, float* y,
                            std::int64_t y_stride) const {
  const auto row_bytes = static_cast<std::int64_t>(activation_stride());
  const int together = kernel_.tokens;
  const int resident = std::max(together, static_cast<int>(kResidentBytes / row_bytes) / together * together);
  const std::byte* const weights = data_.get() + static_cast<std::size_t>(first) * panel_bytes();
  for (int t = 0; t < tokens; t += resident)
    kernel_.multiply(weights, last - first, blocks(), x + t * row_bytes, columns_ / kGroup | 1,
                     std::min(resident, tokens - t), y + t * y_stride, y_stride);
}

}  // namespace palimpsest
