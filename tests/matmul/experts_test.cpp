// Products of a mixture of experts: every row is what its expert's panels give for that row alone, whatever the other
// rows, and each token's sum is in the order of its slots.
#include <ggml-cpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "palimpsest/graph/product_op.h"
#include "palimpsest/model/backend.h"
#include "tests/matmul/converted.h"
#include "tests/support/missing_feature.h"

namespace palimpsest::testing {
namespace {

constexpr int kWidth = 256, kHidden = 64, kExperts = 5;

struct Mixture {
  int tokens, slots, threads;
  bool only_two;  // experts that the router chooses
};

void PrintTo(const Mixture& m, std::ostream* out) {
  *out << m.tokens << " tokens, " << m.slots << " slots, " << m.threads << " threads" << (m.only_two ? ", two" : "");
}

class Experts : public ::testing::TestWithParam<Mixture> {
 protected:
  Panels matrices(int rows, int columns) {
    std::vector<float> plain(static_cast<std::size_t>(rows) * kExperts * columns);
    for (float& x : plain) x = normal_(random_);
    std::vector<std::byte> data(ggml_row_size(GGML_TYPE_Q8_0, columns) * static_cast<std::size_t>(rows) * kExperts);
    ggml_quantize_chunk(GGML_TYPE_Q8_0, plain.data(), data.data(), 0, std::int64_t{rows} * kExperts, columns, nullptr);
    return Panels(GGML_TYPE_Q8_0, std::int64_t{rows} * kExperts, columns, data.data());
  }
  static std::vector<float> product(const Panels& weights, int expert, const float* x) {
    const int panels = weights.panels() / kExperts;
    const Converted activations(weights, {x, static_cast<std::size_t>(weights.columns())});
    std::vector<float> out(static_cast<std::size_t>(panels * Panels::kRows));
    weights.multiply(expert * panels, (expert + 1) * panels, activations.row(), 1, out.data(), std::ssize(out));
    return out;
  }

  std::mt19937 random_{5};
  std::normal_distribution<float> normal_;
};

TEST_P(Experts, AreTheirProductsOneByOne) {
  if (!Panels::supports(GGML_TYPE_Q8_0, 16, 32)) GTEST_SKIP() << needs_panels();
  const auto [tokens, slots, threads, only_two] = GetParam();
  const Panels up = matrices(kHidden, kWidth), down = matrices(kWidth, kHidden);
  const ggml_context_ptr context(ggml_init({std::size_t{4} << 20, nullptr, false}));
  ggml_context* const c = context.get();
  ggml_tensor* x = ggml_new_tensor_2d(c, GGML_TYPE_F32, kWidth, tokens);
  ggml_tensor* all = ggml_new_tensor_2d(c, GGML_TYPE_I32, kExperts, tokens);  // all experts of a token, best first
  ggml_tensor* chosen = ggml_view_2d(c, all, slots, tokens, all->nb[1], 0);
  ggml_tensor* weights = ggml_new_tensor_3d(c, GGML_TYPE_F32, 1, slots, tokens);
  ProductOps ops;
  const ExpertOrder order = ops.order(c, chosen, kExperts);
  ggml_tensor* hidden = ops.multiply_experts(c, up, x, order);
  ggml_tensor* out = ops.combine(c, ops.multiply_sorted(c, down, ggml_relu(c, hidden), order), weights, order);
  ggml_cgraph* graph = ggml_new_graph(c);
  ggml_build_forward_expand(graph, out);
  const auto backend = make_backend(find_device("cpu"), threads);

  for (int run = 0; run < 3; ++run) {
    auto *const in = static_cast<float*>(x->data), *const share = static_cast<float*>(weights->data);
    auto* const experts = static_cast<std::int32_t*>(all->data);
    std::generate_n(in, kWidth * tokens, [&] { return normal_(random_); });
    std::generate_n(share, slots * tokens, [&] { return normal_(random_); });
    for (int t = 0; t < tokens; ++t) {
      std::iota(experts + t * kExperts, experts + (t + 1) * kExperts, 0);
      std::shuffle(experts + t * kExperts, experts + t * kExperts + (only_two ? 2 : kExperts), random_);
    }
    ASSERT_EQ(ggml_backend_graph_compute(backend.get(), graph), GGML_STATUS_SUCCESS);
    for (int t = 0; t < tokens; ++t) {
      std::vector<float> expected(kWidth);
      for (int s = 0; s < slots; ++s) {
        const int expert = experts[t * kExperts + s];
        std::vector<float> middle = product(up, expert, in + t * kWidth);
        for (float& value : middle) value = std::max(value, 0.0F);
        const std::vector<float> row = product(down, expert, middle.data());
        for (int k = 0; k < kWidth; ++k) expected[k] += share[t * slots + s] * row[k];
      }
      const float* const got = static_cast<const float*>(out->data) + t * kWidth;
      for (int k = 0; k < kWidth; ++k) ASSERT_FLOAT_EQ(got[k], expected[k]) << run << " " << t << " " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Mixtures, Experts,
                         ::testing::Values(Mixture{1, 2, 1, false}, Mixture{1, 5, 2, false}, Mixture{7, 2, 3, false},
                                           Mixture{64, 3, 2, false}, Mixture{33, 2, 2, true}, Mixture{2, 1, 4, false}));

}  // namespace
}  // namespace palimpsest::testing
