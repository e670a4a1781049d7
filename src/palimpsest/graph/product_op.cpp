#include "palimpsest/graph/product_op.h"

#include <algorithm>
#include <cassert>

namespace palimpsest {
namespace {

constexpr int kUnits = 64;  // max work units of a product: small units, so that threads finish at about the same time

// Aligns the groups to cache lines: ggml's alignment is smaller.
ActivationGroup* groups_in(const ggml_tensor* t) {
  const auto at = reinterpret_cast<std::uintptr_t>(t->data);
  return reinterpret_cast<ActivationGroup*>((at + alignof(ActivationGroup) - 1) & ~(alignof(ActivationGroup) - 1));
}

}  // namespace

ggml_tensor* ProductOps::multiply(ggml_context* context, const Panels& weights, ggml_tensor* x) {
  assert(x->type == GGML_TYPE_F32 && x->nb[0] == sizeof(float) && x->ne[0] == weights.columns() && x->ne[2] == 1);
  ggml_tensor*& groups = quantized_[x];
  if (groups == nullptr) {
    const std::int64_t count = x->ne[0] / kGroup * x->ne[1] + 1;
    groups = ggml_custom_4d(context, GGML_TYPE_I8, count * std::int64_t{sizeof(ActivationGroup)}, 1, 1, 1, &x, 1,
                            quantize, GGML_N_TASKS_MAX, nullptr);
  }
  Product& product = products_.emplace_back(&weights);
  return ggml_custom_4d(context, GGML_TYPE_F32, weights.rows(), x->ne[1], 1, 1, &groups, 1, run, GGML_N_TASKS_MAX,
                        &product);
}

void ProductOps::quantize(ggml_tensor* out, int thread, int threads, void*) {
  const ggml_tensor* x = out->src[0];
  const std::int64_t in_row = x->ne[0] / kGroup, all = in_row * x->ne[1];
  std::int64_t at = all * thread / threads;
  const std::int64_t end = all * (thread + 1) / threads;
  while (at < end) {
    const std::int64_t row = at / in_row, first = at % in_row, count = std::min(in_row - first, end - at);
    const auto* from = reinterpret_cast<const float*>(static_cast<const char*>(x->data) + row * x->nb[1]);
    quantize_activations(from + first * kGroup, static_cast<int>(count) * kGroup, groups_in(out) + at);
    at += count;
  }
}

void ProductOps::run(ggml_tensor* out, int, int threads, void* userdata) {
  Product& product = *static_cast<Product*>(userdata);
  const Panels& weights = *product.weights;
  const int panels = weights.panels(), each = (panels + kUnits - 1) / kUnits, units = (panels + each - 1) / each;
  for (;;) {
    const std::int64_t unit = product.taken.fetch_add(1, std::memory_order_relaxed) % (units + threads);
    if (unit >= units) return;
    const int first = static_cast<int>(unit) * each;
    weights.multiply(first, std::min(first + each, panels), groups_in(out->src[0]), static_cast<int>(out->ne[1]),
                     static_cast<float*>(out->data), static_cast<std::int64_t>(out->nb[1] / sizeof(float)));
  }
}

}  // namespace palimpsest
