// Products of weights with activations of some tokens, one thread: ours (matmul/) interleaved with ggml's,
// with weights repacked by ggml. Prints the CPU's limit, then a table: multiply-adds per second of CPU time, and the
// ratio.
//
//   build/matmul_bench [rows] [columns] [rounds] [type]     rounds 0: only the limit
//   PALIMPSEST_SIMD=AVX2 build/matmul_bench                 as on a lesser CPU, both (core/cpu_level.h)
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "palimpsest/core/cpu_level.h"
#include "palimpsest/core/error.h"
#include "palimpsest/matmul/panels.h"
#include "palimpsest/model/backend.h"
#include "research/speed/machine.h"

namespace palimpsest::bench {
namespace {

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// ggml's product on its CPU backend.
class Ggml {
 public:
  Ggml(ggml_type type, int rows, int columns, int tokens, const std::vector<std::byte>& weights)
      : device_(find_device("cpu")), backend_(make_backend(device_, 1)) {
    context_.reset(ggml_init({8 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true}));
    weight_ = ggml_new_tensor_2d(context_.get(), type, columns, rows);
    ggml_tensor* x = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, columns, tokens);
    ggml_tensor* y = ggml_mul_mat(context_.get(), weight_, x);
    auto types = extra_buffer_types(device_);
    types.push_back(ggml_backend_dev_buffer_type(device_));
    for (ggml_backend_buffer_type_t buffer : types) {
      ggml_backend_buffer_ptr probe(ggml_backend_buft_alloc_buffer(buffer, 0));
      weight_->buffer = probe.get();
      const bool fits = ggml_backend_dev_supports_op(device_, y);
      weight_->buffer = nullptr;
      if (!fits) continue;
      memory_.emplace_back(ggml_backend_buft_alloc_buffer(
          buffer, ggml_backend_buft_get_alloc_size(buffer, weight_) + ggml_backend_buft_get_alignment(buffer)));
      ggml_backend_tensor_alloc(memory_.back().get(), weight_, ggml_backend_buffer_get_base(memory_.back().get()));
      break;
    }
    ggml_backend_tensor_set(weight_, weights.data(), 0, weights.size());
    graph_ = ggml_new_graph(context_.get());
    ggml_build_forward_expand(graph_, y);
    memory_.emplace_back(ggml_backend_alloc_ctx_tensors(context_.get(), backend_.get()));
    const std::vector<float> ones(static_cast<std::size_t>(columns) * tokens, 0.5F);
    ggml_backend_tensor_set(x, ones.data(), 0, ones.size() * sizeof(float));
  }
  void run() { ggml_backend_graph_compute(backend_.get(), graph_); }

 private:
  ggml_backend_dev_t device_;
  ggml_backend_ptr backend_;
  ggml_context_ptr context_;
  ggml_cgraph* graph_ = nullptr;
  ggml_tensor* weight_ = nullptr;
  std::vector<ggml_backend_buffer_ptr> memory_;
};

template <typename Do>
double seconds_of(Do action) {
  int times = 0;
  const double start = cpu_seconds();
  double now = start;
  do {
    action();
    ++times;
    now = cpu_seconds();
  } while (now - start < 0.05);
  return (now - start) / times;
}

void compare(ggml_type type, int rows, int columns, int tokens, int rounds) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> plain(static_cast<std::size_t>(rows) * columns), x(static_cast<std::size_t>(tokens) * columns);
  for (float& v : plain) v = normal(random);
  for (float& v : x) v = normal(random);
  std::vector<std::byte> weights(ggml_row_size(type, columns) * rows);
  ggml_quantize_chunk(type, plain.data(), weights.data(), 0, rows, columns, nullptr);
  const Panels panels(type, rows, columns, weights.data());
  Ggml ggml(type, rows, columns, tokens, weights);
  std::vector<ActivationGroup> lines(static_cast<std::size_t>(tokens) * panels.activation_stride() /
                                     sizeof(ActivationGroup));
  auto* const activations = reinterpret_cast<std::byte*>(lines.data());
  std::vector<float> y(static_cast<std::size_t>(tokens) * rows);
  std::vector<double> ours, theirs, ratios;
  for (int i = 0; i < rounds; ++i) {
    theirs.push_back(seconds_of([&] { ggml.run(); }));
    ours.push_back(seconds_of([&] {
      for (int t = 0; t < tokens; ++t)
        panels.convert(&x[static_cast<std::size_t>(t) * columns], columns,
                       activations + static_cast<std::size_t>(t) * panels.activation_stride());
      panels.multiply(0, panels.panels(), activations, tokens, y.data(), rows);
    }));
    ratios.push_back(theirs.back() / ours.back());
  }
  const auto median = [](std::vector<double> v) {
    std::ranges::sort(v);
    return v[v.size() / 2];
  };
  const double work = 1e-9 * rows * columns * tokens;
  std::printf("%-8s %6d %10.1f %10.1f %8.2fx\n", ggml_type_name(type), tokens, work / median(ours),
              work / median(theirs), median(ratios));
  std::fflush(stdout);
}

// 8-bit multiply-adds per second of all threads together, if every vector operation is one: a 64-byte vector has four
// times as many as of floats.
double limit(int threads) {
  std::atomic<int> waiting = threads;
  std::vector<double> done(static_cast<std::size_t>(threads)), seconds(done.size());
  {
    std::vector<std::jthread> team;
    for (std::size_t t = 0; t < done.size(); ++t)
      team.emplace_back([&, t] {
        for (--waiting; waiting > 0;) std::this_thread::yield();
        float result;
        const auto start = std::chrono::steady_clock::now();
        done[t] = multiply_add(2'000'000, &result);
        seconds[t] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      });
  }
  return 4 * std::accumulate(done.begin(), done.end(), 0.0) / 2 / std::ranges::max(seconds);
}

}  // namespace
}  // namespace palimpsest::bench

int main(int argc, char** argv) {
  using namespace palimpsest;
  try {
    limit_cpu_level();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  const int rows = argc > 1 ? std::atoi(argv[1]) : 2048, columns = argc > 2 ? std::atoi(argv[2]) : 2048,
            rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  const std::string_view only = argc > 4 ? argv[4] : "";
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::printf("kernels: %s\n", cpu_level().c_str());
  std::printf("limit of 8-bit products: %.1f of one thread, %.1f of %d together\n", 1e-9 * bench::limit(1),
              1e-9 * bench::limit(threads), threads);
  if (rounds == 0) return 0;
  std::printf("%d x %d, 10^9 multiply-adds a second of one thread's CPU time\n%-8s %6s %10s %10s %9s\n", rows, columns,
              "type", "tokens", "ours", "ggml", "ratio");
  for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K,
                               GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_IQ4_XS, GGML_TYPE_IQ4_NL,
                               GGML_TYPE_MXFP4, GGML_TYPE_BF16, GGML_TYPE_F16, GGML_TYPE_F32})
    for (const int tokens : {1, 8, 32, 512})
      if ((only.empty() || only == ggml_type_name(type)) && Panels::supports(type, rows, columns))
        bench::compare(type, rows, columns, tokens, rounds);
}
