#include "palimpsest/graph/product_op.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <span>

#include "palimpsest/graph/in_parts.h"

namespace palimpsest {
namespace {

constexpr std::int64_t kReading = 4;  // tokens of a product that mostly waits for weights from memory
constexpr int kUnits = 64;  // max work units of a product: small ones at its end, so that threads finish together

int units_of(int threads) {
  return threads == 1 ? 1 : kUnits;
}

constexpr std::uintptr_t kLine = 64;

// Aligns the activations to cache lines: ggml's alignment is smaller.
std::byte* activations_in(const ggml_tensor* t) {
  const auto at = reinterpret_cast<std::uintptr_t>(t->data);
  return reinterpret_cast<std::byte*>((at + kLine - 1) & ~(kLine - 1));
}

std::int64_t stride_of(const Panels& weights) {
  return static_cast<std::int64_t>(weights.activation_stride());
}

const float* row_of(const ggml_tensor* t, std::int64_t row) {
  return reinterpret_cast<const float*>(static_cast<const char*>(t->data) + static_cast<std::size_t>(row) * t->nb[1]);
}

// Row `slot` of token `t` has the number t * slots + slot.
struct Places {
  std::span<std::int32_t> first;  // [experts + 1], the place of each expert's first row
  std::span<std::int32_t> row;    // [rows], the row at each place
  std::span<std::int32_t> place;  // [rows], the place of each row

  Places(const ggml_tensor* t, int experts) {
    auto* const data = static_cast<std::int32_t*>(t->data);
    const auto heads = static_cast<std::size_t>(experts) + 1, rows = (static_cast<std::size_t>(t->ne[0]) - heads) / 2;
    first = {data, heads};
    row = {data + heads, rows};
    place = {data + heads + rows, rows};
  }
};

}  // namespace

template <class Work>
void ProductOps::Product::share(std::int64_t units, std::int64_t tokens, int threads, const Work& work) {
  const std::int64_t divisor = tokens <= kReading ? 2 * threads : units;
  for (std::int64_t first = taken.load(std::memory_order_relaxed); first < units;) {
    const std::int64_t last = first + std::max<std::int64_t>(1, (units - first) / divisor);
    if (!taken.compare_exchange_weak(first, last, std::memory_order_relaxed)) continue;
    work(first, last);
    first = taken.load(std::memory_order_relaxed);
  }
  // Each thread takes one unit too many. The last one leaves 0 to the next run, which may have another number of
  // threads; all have returned before it begins.
  if (taken.fetch_add(1, std::memory_order_relaxed) == units + threads - 1) taken.store(0, std::memory_order_relaxed);
}

ggml_tensor* ProductOps::converted(ggml_context* context, const Panels& weights, ggml_tensor* x,
                                   const ExpertOrder* order) {
  ggml_tensor*& out = converted_[{x, order == nullptr ? nullptr : order->sorted_rows, weights.form()}];
  if (out == nullptr) {
    ggml_tensor* sources[] = {x, order == nullptr ? nullptr : order->sorted_rows};
    const std::int64_t rows = order == nullptr ? x->ne[1] : order->rows;
    Product& product = products_.emplace_back(&weights, order == nullptr ? 1 : order->experts, pool_);
    out = ggml_custom_4d(context, GGML_TYPE_I8, rows * stride_of(weights) + kLine, 1, 1, 1, sources,
                         order == nullptr ? 1 : 2, convert, GGML_N_TASKS_MAX, &product);
  }
  return out;
}

ggml_tensor* ProductOps::multiply(ggml_context* context, const Panels& weights, ggml_tensor* x) {
  assert(x->type == GGML_TYPE_F32 && x->nb[0] == sizeof(float) && x->ne[0] == weights.columns() && x->ne[2] == 1);
  ggml_tensor* activations = converted(context, weights, x, nullptr);
  Product& product = products_.emplace_back(&weights, 1, pool_);
  return ggml_custom_4d(context, GGML_TYPE_F32, weights.rows(), x->ne[1], 1, 1, &activations, 1, multiply_all,
                        GGML_N_TASKS_MAX, &product);
}

ExpertOrder ProductOps::order(ggml_context* context, ggml_tensor* chosen, int experts) {
  const std::int64_t rows = chosen->ne[0] * chosen->ne[1];
  Product& product = products_.emplace_back(nullptr, experts, pool_);
  return {ggml_custom_4d(context, GGML_TYPE_I32, experts + 1 + 2 * rows, 1, 1, 1, &chosen, 1, sort, GGML_N_TASKS_MAX,
                         &product),
          experts, rows};
}

ggml_tensor* ProductOps::multiply_converted(ggml_context* context, const Panels& weights, ggml_tensor* activations,
                                            const ExpertOrder& order) {
  assert(weights.panels() % order.experts == 0);
  ggml_tensor* sources[] = {activations, order.sorted_rows};
  Product& product = products_.emplace_back(&weights, order.experts, pool_);
  return ggml_custom_4d(context, GGML_TYPE_F32, weights.rows() / order.experts, order.rows, 1, 1, sources, 2,
                        multiply_by_expert, GGML_N_TASKS_MAX, &product);
}

ggml_tensor* ProductOps::multiply_experts(ggml_context* context, const Panels& weights, ggml_tensor* x,
                                          const ExpertOrder& order) {
  return multiply_converted(context, weights, converted(context, weights, x, &order), order);
}

ggml_tensor* ProductOps::multiply_sorted(ggml_context* context, const Panels& weights, ggml_tensor* x,
                                         const ExpertOrder& order) {
  return multiply_converted(context, weights, converted(context, weights, x, nullptr), order);
}

ggml_tensor* ProductOps::add_expert_bias(ggml_context* context, ggml_tensor* x, ggml_tensor* bias,
                                         const ExpertOrder& order) {
  assert(bias->ne[0] == x->ne[0] && bias->ne[1] == order.experts && ggml_is_contiguous(bias));
  ggml_tensor* sources[] = {x, bias, order.sorted_rows};
  Product& product = products_.emplace_back(nullptr, order.experts, pool_);
  return ggml_custom_4d(context, GGML_TYPE_F32, x->ne[0], x->ne[1], 1, 1, sources, 3, add_bias, GGML_N_TASKS_MAX,
                        &product);
}

ggml_tensor* ProductOps::combine(ggml_context* context, ggml_tensor* x, ggml_tensor* weights,
                                 const ExpertOrder& order) {
  ggml_tensor* sources[] = {x, weights, order.sorted_rows};
  Product& product = products_.emplace_back(nullptr, order.experts, pool_);
  return ggml_custom_4d(context, GGML_TYPE_F32, x->ne[0], weights->ne[2], 1, 1, sources, 3, add, GGML_N_TASKS_MAX,
                        &product);
}

void ProductOps::convert(ggml_tensor* out, int thread, int threads, void* userdata) {
  const Product& product = *static_cast<Product*>(userdata);
  in_parts(product.pool, thread, threads, static_cast<double>(ggml_nelements(out)),
           [&](int part, int parts) { convert_part(out, part, parts, product); });
}

void ProductOps::convert_part(ggml_tensor* out, int part, int parts, const Product& product) {
  const ggml_tensor *x = out->src[0], *sorted_rows = out->src[1];
  const Panels& weights = *product.weights;
  const std::int64_t in_row = x->ne[0] / kGroup;
  std::span<const std::int32_t> row_at;
  std::int64_t slots = 1;
  if (sorted_rows != nullptr) {
    row_at = Places(sorted_rows, product.experts).row;
    slots = std::ssize(row_at) / x->ne[1];
  }
  const std::int64_t all = in_row * (sorted_rows == nullptr ? x->ne[1] : std::ssize(row_at));
  std::int64_t at = all * part / parts;
  const std::int64_t end = all * (part + 1) / parts;
  while (at < end) {
    const std::int64_t row = at / in_row, first = at % in_row, count = std::min(in_row - first, end - at);
    const float* from = row_of(x, sorted_rows == nullptr ? row : row_at[static_cast<std::size_t>(row)] / slots);
    weights.convert(from + first * kGroup, static_cast<int>(count) * kGroup,
                    activations_in(out) + row * stride_of(weights) +
                        first * static_cast<std::int64_t>(group_bytes(weights.form())));
    at += count;
  }
}

void ProductOps::multiply_all(ggml_tensor* out, int thread, int threads, void* userdata) {
  Product& product = *static_cast<Product*>(userdata);
  const Panels& weights = *product.weights;
  const double work = static_cast<double>(weights.bytes()) * static_cast<double>(out->ne[1]);
  in_parts(product.pool, thread, threads, work, [&](int, int parts) {
    const int panels = weights.panels(), units = units_of(parts);
    const int each = ((panels + units - 1) / units + 1) / 2 * 2;  // even: kernels multiply two panels together
    product.share((panels + each - 1) / each, out->ne[1], parts, [&](std::int64_t from, std::int64_t to) {
      const int first = static_cast<int>(from) * each, last = std::min(static_cast<int>(to) * each, panels);
      weights.multiply(first, last, activations_in(out->src[0]), static_cast<int>(out->ne[1]),
                       static_cast<float*>(out->data) + first * Panels::kRows,
                       static_cast<std::int64_t>(out->nb[1] / sizeof(float)));
    });
  });
}

void ProductOps::sort(ggml_tensor* out, int thread, int, void* userdata) {
  if (thread != 0) return;  // ggml calls it in all threads, whatever number of tasks is asked for
  const ggml_tensor* chosen = out->src[0];
  const Places p(out, static_cast<Product*>(userdata)->experts);
  const auto expert_of = [&](std::int64_t row) {
    const auto slot = static_cast<std::size_t>(row % chosen->ne[0]),
               token = static_cast<std::size_t>(row / chosen->ne[0]);
    std::int32_t expert;
    std::memcpy(&expert, static_cast<const char*>(chosen->data) + token * chosen->nb[1] + slot * chosen->nb[0], 4);
    return static_cast<std::size_t>(expert);
  };
  std::ranges::fill(p.first, 0);
  for (std::int64_t row = 0; row < std::ssize(p.row); ++row) ++p.first[expert_of(row) + 1];
  for (std::size_t e = 1; e < p.first.size(); ++e) p.first[e] += p.first[e - 1];
  // Each row takes the next place of its expert; this moves the first places up to the next expert's, and back.
  for (std::int64_t row = 0; row < std::ssize(p.row); ++row) {
    std::int32_t& place = p.first[expert_of(row)];
    p.row[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(row);
    p.place[static_cast<std::size_t>(row)] = place++;
  }
  for (std::size_t e = p.first.size() - 1; e > 0; --e) p.first[e] = p.first[e - 1];
  p.first[0] = 0;
}

// A unit is a range of all panels of the experts that have rows.
void ProductOps::multiply_by_expert(ggml_tensor* out, int thread, int threads, void* userdata) {
  Product& product = *static_cast<Product*>(userdata);
  const double work = static_cast<double>(product.weights->bytes()) / product.experts * static_cast<double>(out->ne[1]);
  in_parts(product.pool, thread, threads, work, [&](int, int parts) { multiply_experts_part(out, parts, product); });
}

void ProductOps::multiply_experts_part(ggml_tensor* out, int threads, Product& product) {
  const Panels& weights = *product.weights;
  const Places p(out->src[1], product.experts);
  const int panels = weights.panels() / product.experts;
  std::int64_t busy = 0;  // experts that have rows
  for (std::size_t e = 0; e + 1 < p.first.size(); ++e) busy += p.first[e + 1] > p.first[e] ? 1 : 0;
  const std::int64_t all = busy * panels, rows_each = out->ne[1] / std::max<std::int64_t>(1, busy);
  const auto stride = static_cast<std::int64_t>(out->nb[1] / sizeof(float));
  const int units = units_of(threads);
  product.share(units, rows_each, threads, [&](std::int64_t from, std::int64_t to) {
    const std::int64_t begin = all * from / units, end = all * to / units;
    std::int64_t at = 0;  // of the panels of experts that have rows
    for (int e = 0; e < product.experts && at < end; ++e) {
      const std::int32_t place = p.first[static_cast<std::size_t>(e)],
                         rows = p.first[static_cast<std::size_t>(e) + 1] - place;
      if (rows == 0) continue;
      const std::int64_t first = std::clamp<std::int64_t>(begin - at, 0, panels),
                         last = std::min<std::int64_t>(end - at, panels);
      if (first < last) {
        const int base = e * panels;
        weights.multiply(base + static_cast<int>(first), base + static_cast<int>(last),
                         activations_in(out->src[0]) + place * stride_of(weights), rows,
                         static_cast<float*>(out->data) + place * stride + first * Panels::kRows, stride);
      }
      at += panels;
    }
  });
}

void ProductOps::add_bias(ggml_tensor* out, int thread, int threads, void* userdata) {
  const Product& product = *static_cast<Product*>(userdata);
  in_parts(product.pool, thread, threads, static_cast<double>(ggml_nelements(out)),
           [&](int part, int parts) { add_bias_part(out, part, parts, product.experts); });
}

void ProductOps::add_bias_part(ggml_tensor* out, int thread, int threads, int experts) {
  const ggml_tensor *x = out->src[0], *bias = out->src[1];
  const Places p(out->src[2], experts);
  const std::int64_t columns = out->ne[0], first = out->ne[1] * thread / threads,
                     last = out->ne[1] * (thread + 1) / threads;
  for (std::int64_t row = first, expert = 0; row < last; ++row) {
    while (p.first[static_cast<std::size_t>(expert) + 1] <= row) ++expert;
    const float *const from = row_of(x, row), *const add = row_of(bias, expert);
    float* const to = static_cast<float*>(out->data) + row * columns;
    for (std::int64_t c = 0; c < columns; ++c) to[c] = from[c] + add[c];
  }
}

void ProductOps::add(ggml_tensor* out, int thread, int threads, void* userdata) {
  const Product& product = *static_cast<Product*>(userdata);
  in_parts(product.pool, thread, threads, static_cast<double>(ggml_nelements(out->src[0])),
           [&](int part, int parts) { add_part(out, part, parts, product.experts); });
}

void ProductOps::add_part(ggml_tensor* out, int thread, int threads, int experts) {
  const ggml_tensor *x = out->src[0], *weights = out->src[1];
  const Places p(out->src[2], experts);
  const std::int64_t columns = out->ne[0], tokens = out->ne[1], slots = weights->ne[1];
  // Threads divide the columns of few tokens, and the tokens otherwise.
  const bool by_token = tokens >= threads;
  const std::int64_t first_column = by_token ? 0 : columns * thread / threads,
                     last_column = by_token ? columns : columns * (thread + 1) / threads;
  const std::int64_t first_token = by_token ? tokens * thread / threads : 0,
                     last_token = by_token ? tokens * (thread + 1) / threads : tokens;
  for (std::int64_t t = first_token; t < last_token; ++t) {
    auto* const sum =
        reinterpret_cast<float*>(static_cast<char*>(out->data) + static_cast<std::size_t>(t) * out->nb[1]);
    for (std::int64_t s = 0; s < slots; ++s) {
      const float* const row = row_of(x, p.place[static_cast<std::size_t>(t * slots + s)]);
      const float weight = static_cast<const float*>(weights->data)[t * slots + s];
      for (std::int64_t c = first_column; c < last_column; ++c)
        sum[c] = s == 0 ? weight * row[c] : sum[c] + weight * row[c];
    }
  }
}

}  // namespace palimpsest
