// Products of one graph that is computed by teams of different sizes, of ggml's threads and of a pool: OpenMP may give
// fewer threads than it is asked for (OMP_DYNAMIC, a thread limit), and another number in each run.
#include "palimpsest/graph/product_op.h"

#include <ggml-cpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "palimpsest/core/thread_pool.h"
#include "palimpsest/model/backend.h"

namespace palimpsest::testing {
namespace {

constexpr int kTeamColumns = 64, kTeamRows = 1200, kTeamExperts = 4;

Panels random_matrix(std::mt19937& random, int rows) {
  std::normal_distribution<float> normal;
  std::vector<float> data(static_cast<std::size_t>(rows) * kTeamColumns);
  std::ranges::generate(data, [&] { return normal(random); });
  return Panels(GGML_TYPE_F32, rows, kTeamColumns, reinterpret_cast<const std::byte*>(data.data()));
}

TEST(ProductOps, AnyTeamComputesAllRows) {
  constexpr int kSlots = 2, kTokens = 3;
  if (!Panels::supports(GGML_TYPE_F32, kTeamRows, kTeamColumns)) GTEST_SKIP() << "this CPU has no 64-byte vectors";
  std::mt19937 random(3);
  const Panels dense = random_matrix(random, kTeamRows), up = random_matrix(random, kTeamRows * kTeamExperts);
  const ggml_context_ptr context(ggml_init({std::size_t{4} << 20, nullptr, false}));
  ggml_context* const c = context.get();
  ggml_tensor* x = ggml_new_tensor_2d(c, GGML_TYPE_F32, kTeamColumns, kTokens);
  ggml_tensor* chosen = ggml_new_tensor_2d(c, GGML_TYPE_I32, kSlots, kTokens);
  std::iota(static_cast<float*>(x->data), static_cast<float*>(x->data) + kTeamColumns * kTokens, -90.0F);
  for (int i = 0; i < kSlots * kTokens; ++i) static_cast<std::int32_t*>(chosen->data)[i] = i % kTeamExperts;
  ThreadPool pool(4);
  ProductOps ops(&pool);
  ggml_tensor* const outs[] = {ops.multiply(c, dense, x),
                               ops.multiply_experts(c, up, x, ops.order(c, chosen, kTeamExperts))};
  ggml_cgraph* graph = ggml_new_graph(c);
  for (ggml_tensor* out : outs) ggml_build_forward_expand(graph, out);

  std::vector<std::vector<float>> first;
  for (const auto [threads, of_pool] :
       {std::pair{4, 1}, {3, 1}, {1, 4}, {1, 1}, {2, 1}, {1, 2}, {4, 1}, {1, 3}, {2, 4}}) {
    pool.use(of_pool);
    for (ggml_tensor* out : outs) std::fill_n(static_cast<float*>(out->data), ggml_nelements(out), NAN);
    ASSERT_EQ(ggml_backend_graph_compute(make_backend(find_device("cpu"), threads).get(), graph), GGML_STATUS_SUCCESS);
    std::vector<std::vector<float>> all;
    for (const ggml_tensor* out : outs)
      all.emplace_back(static_cast<const float*>(out->data),
                       static_cast<const float*>(out->data) + ggml_nelements(out));
    if (first.empty()) {
      for (const auto& values : all) ASSERT_EQ(std::ranges::count_if(values, [](float v) { return std::isnan(v); }), 0);
      first = all;
    }
    ASSERT_TRUE(all == first) << threads << " threads, " << of_pool << " of the pool";
  }
}

}  // namespace
}  // namespace palimpsest::testing
