// Graphs on the pool have the bits of graphs on ggml's threads.
#include "palimpsest/graph/pool_graph.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "palimpsest/model/backend.h"

namespace palimpsest::testing {
namespace {

constexpr int kWidth = 320, kHeads = 5, kRows = 203;

class PoolGraphTest : public ::testing::Test {
 protected:
  ggml_tensor* input(std::int64_t a, std::int64_t b = 1, std::int64_t c = 1) {
    ggml_tensor* t = ggml_new_tensor_3d(c_, GGML_TYPE_F32, a, b, c);
    std::generate_n(static_cast<float*>(t->data), ggml_nelements(t), [&] { return normal_(random_); });
    return t;
  }
  // The values of `out` computed by ggml on one thread, and by a pool.
  void check(ggml_tensor* out, const char* what) {
    ggml_cgraph* graph = ggml_new_graph(c_);
    ggml_build_forward_expand(graph, out);
    ASSERT_TRUE(PoolGraph::suits(graph)) << what;
    const ggml_backend_ptr caller = make_backend(find_device("cpu"), 1);
    ASSERT_EQ(ggml_backend_graph_compute(caller.get(), graph), GGML_STATUS_SUCCESS);
    const std::vector<float> expected(data(out), data(out) + ggml_nelements(out));
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      SliceMemory memory(2 * threads);
      PoolGraph on_pool(graph);
      for (int run = 0; run < 3; ++run) {
        std::fill_n(data(out), ggml_nelements(out), NAN);
        ASSERT_EQ(on_pool.run(caller.get(), pool, memory), GGML_STATUS_SUCCESS);
        ASSERT_EQ(std::vector<float>(data(out), data(out) + ggml_nelements(out)), expected) << what << ", " << threads;
      }
    }
  }
  static float* data(ggml_tensor* t) { return static_cast<float*>(t->data); }

  ggml_context_ptr context_{ggml_init({std::size_t{256} << 20, nullptr, false})};
  ggml_context* const c_ = context_.get();
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
};

TEST_F(PoolGraphTest, OperatorsInSlices) {
  ggml_tensor *x = input(kWidth, kRows), *y = input(kWidth, kRows), *w = input(kWidth), *one = input(1, kRows);
  check(ggml_mul(c_, ggml_rms_norm(c_, x, 1e-5F), w), "norm");
  check(ggml_add(c_, ggml_mul(c_, ggml_norm(c_, x, 1e-5F), w), w), "layer norm");
  check(ggml_add(c_, x, y), "add");
  check(ggml_sub(c_, ggml_scale(c_, x, 0.5F), y), "scale, sub");
  check(ggml_mul(c_, x, one), "a factor of each token");
  check(ggml_swiglu_split(c_, x, y), "swiglu");
  check(ggml_geglu_split(c_, x, y), "geglu");
  check(ggml_swiglu(c_, x), "packed swiglu");
  check(ggml_silu(c_, x), "silu");
  check(ggml_gelu(c_, x), "gelu");
  check(ggml_tanh(c_, ggml_sqr(c_, ggml_relu(c_, x))), "tanh of squares");
  check(ggml_soft_max(c_, x), "softmax");
  check(ggml_div(c_, x, ggml_sum_rows(c_, x)), "over sums");
  check(ggml_clamp(c_, x, -1, 1), "clamp");
}

TEST_F(PoolGraphTest, Views) {
  constexpr int kDim = kWidth / kHeads;
  ggml_tensor *x = input(kWidth, kRows), *w = input(kDim);
  ggml_tensor* heads = ggml_view_3d(c_, x, kDim, kHeads, kRows, kDim * sizeof(float), x->nb[1], 0);
  check(ggml_mul(c_, ggml_rms_norm(c_, heads, 1e-5F), w), "a norm of each head");
  check(ggml_cont(c_, ggml_permute(c_, heads, 0, 2, 1, 3)), "by head");
  ggml_tensor* part = ggml_view_2d(c_, x, kWidth / 2, kRows, x->nb[1], 64);
  check(ggml_add(c_, part, part), "a part of each row");
  check(ggml_add_inplace(c_, ggml_scale(c_, x, 2), x), "in place");
}

// What depends on other rows is not cut.
TEST_F(PoolGraphTest, OperatorsAcrossRows) {
  ggml_tensor *x = input(kWidth, kRows), *few = input(kWidth, 7);
  check(ggml_add(c_, x, ggml_repeat(c_, input(kWidth, 1), x)), "repeat");
  check(ggml_concat(c_, x, ggml_scale(c_, x, 3), 1), "concat");
  check(ggml_scale(c_, ggml_mul_mat(c_, few, x), 2), "a small product");
}

TEST_F(PoolGraphTest, LargeProductsStayOnGgmlsThreads) {
  ggml_cgraph* graph = ggml_new_graph(c_);
  ggml_build_forward_expand(graph, ggml_mul_mat(c_, input(1024, 1024), input(1024, 8)));
  EXPECT_FALSE(PoolGraph::suits(graph));
}

}  // namespace
}  // namespace palimpsest::testing
