// The attention kernel in the shape of llama-3.2-1b (8 KV heads, groups of 4, 64 dimensions, 16 layers), against the
// machine's limits: bytes per second of a plain read, multiply-adds per second in registers. Both sides are interleaved
// in one run, so the ratios (`of_read`, `of_peak`) hold on a loaded machine.
//
//   attention_bench --benchmark_filter=Decode/page:64
//   PALIMPSEST_SIMD=AVX2 attention_bench ...              as on a lesser CPU (core/cpu_level.h)
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "palimpsest/core/cpu_level.h"
#include "palimpsest/core/error.h"
#include "research/speed/attention_model.h"
#include "research/speed/machine.h"
#include "research/speed/team.h"
#include "research/speed/three_step.h"

namespace palimpsest::bench {
namespace {

// Uses CPU time for one thread, which is less sensitive to load, and wall time for several.
class Stopwatch {
 public:
  explicit Stopwatch(const Team& team) : clock_(team.threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC) {
    clock_gettime(clock_, &start_);
  }
  double seconds() const {
    timespec now;
    clock_gettime(clock_, &now);
    return static_cast<double>(now.tv_sec - start_.tv_sec) + static_cast<double>(now.tv_nsec - start_.tv_nsec) * 1e-9;
  }

 private:
  clockid_t clock_;
  timespec start_;
};

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

// Larger than any cache.
class ReadLimit {
 public:
  explicit ReadLimit(Team& team) : team_(team), data_(kBytes / 4, 1) {}
  double bytes_per_second() {
    const Stopwatch watch(team_);
    const std::size_t share = kBytes / static_cast<std::size_t>(team_.threads()) / 512 * 512;
    team_.run([&](int t) {
      benchmark::DoNotOptimize(read_all(reinterpret_cast<const std::byte*>(data_.data()) + t * share, share));
    });
    return static_cast<double>(share) * team_.threads() / watch.seconds();
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{256} << 20;
  Team& team_;
  std::vector<std::uint32_t> data_;
};

double peak_flops(Team& team) {
  std::vector<double> done(static_cast<std::size_t>(team.threads()));
  const Stopwatch watch(team);
  team.run([&](int t) {
    float result;
    done[t] = multiply_add(500'000, &result);
    benchmark::DoNotOptimize(result);
  });
  const double seconds = watch.seconds();
  double sum = 0;
  for (double d : done) sum += d;
  return sum / seconds;
}

double seconds_of(Team& team, AttentionModel& model, bool weights) {
  const Stopwatch watch(team);
  model.run(team, weights);
  return watch.seconds();
}

constexpr int kF32 = static_cast<int>(CacheType::kF32), kF16 = static_cast<int>(CacheType::kF16),
              kBF16 = static_cast<int>(CacheType::kBF16), kQ8 = static_cast<int>(CacheType::kQ8_0),
              kQ40 = static_cast<int>(CacheType::kQ4_0), kQ4 = static_cast<int>(CacheType::kQ4);

// Decode with and without weights, in pairs.
void Decode(benchmark::State& state) {
  AttentionModelOptions o;
  o.page_size = static_cast<int>(state.range(0));
  o.slots = static_cast<int>(state.range(1));
  o.batch = static_cast<int>(state.range(2));
  o.layers = std::max(2, 16 / o.batch * 8192 / std::max(8192, o.slots));
  o.type = static_cast<CacheType>(state.range(4));
  Team team(static_cast<int>(state.range(3)));
  ReadLimit limit(team);
  AttentionModel model(o);
  model.run(team, true);
  std::vector<double> plain, share, weights;
  for (auto _ : state) {
    const double limit_now = limit.bytes_per_second();
    model.run(team, false);  // untimed: reloads the CPU caches
    const double seconds = seconds_of(team, model, false);
    state.SetIterationTime(seconds);
    plain.push_back(seconds);
    share.push_back(model.cache_bytes() / seconds / limit_now);
    weights.push_back(seconds_of(team, model, true) / seconds - 1);
  }
  state.counters["us_per_layer"] = median(plain) * 1e6 / o.layers;
  state.counters["GB/s"] = model.cache_bytes() / median(plain) / 1e9;
  state.counters["of_read"] = median(share);
  state.counters["weights_cost"] = median(weights);
}
BENCHMARK(Decode)
    ->ArgNames({"page", "slots", "batch", "threads", "type"})
    ->ArgsProduct({{64}, {8192, 32768}, {1}, {1, 2}, {kF32, kF16, kBF16, kQ8, kQ40, kQ4}})
    ->ArgsProduct({{64}, {1024, 8192}, {8}, {1, 2}, {kF16}})
    ->ArgsProduct({{16, 128, 256}, {8192}, {1}, {2}, {kF16}})
    ->ArgsProduct({{64}, {256, 1024, 4096}, {1}, {1, 2}, {kF16}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// One core with all data in its CPU cache: the arithmetic limit.
void DecodeInCache(benchmark::State& state) {
  AttentionModelOptions o;
  o.slots = 256;
  o.layers = 1;
  o.type = static_cast<CacheType>(state.range(0));
  Team team(1);
  AttentionModel model(o);
  model.run(team, false);
  std::vector<double> plain;
  for (auto _ : state) {
    plain.push_back(seconds_of(team, model, false));
    state.SetIterationTime(plain.back());
  }
  state.counters["GB/s"] = model.cache_bytes() / median(plain) / 1e9;
}
BENCHMARK(DecodeInCache)->ArgName("type")->DenseRange(kF32, kQ4)->UseManualTime()->Unit(benchmark::kMicrosecond);

// Keys rotated on read or in a copy, against keys stored rotated.
void DecodeRotation(benchmark::State& state) {
  AttentionModelOptions o;
  o.slots = static_cast<int>(state.range(1));
  o.group = static_cast<int>(state.range(2));
  Team team(static_cast<int>(state.range(3)));
  AttentionModel plain(o);
  o.rotation = static_cast<KeyRotation>(state.range(0));
  AttentionModel other(o);
  plain.run(team, false), other.run(team, false);
  std::vector<double> cost;
  for (auto _ : state) {
    const double seconds = seconds_of(team, other, false);
    state.SetIterationTime(seconds);
    cost.push_back(seconds / seconds_of(team, plain, false) - 1);
  }
  state.counters["cost"] = median(cost);
}
BENCHMARK(DecodeRotation)
    ->ArgNames({"rotation", "slots", "group", "threads"})
    ->ArgsProduct({{1, 2, 3, 4}, {256, 1024, 8192}, {4}, {1, 2}})
    ->ArgsProduct({{1, 2, 3, 4}, {1024}, {1, 8}, {1}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

void Prompt(benchmark::State& state) {
  AttentionModelOptions o;
  o.new_tokens = static_cast<int>(state.range(0));
  o.slots = static_cast<int>(state.range(1));
  o.layers = 1;
  Team team(static_cast<int>(state.range(2)));
  AttentionModel model(o);
  model.run(team, false);
  std::vector<double> time, share, weights;
  for (auto _ : state) {
    const double seconds = seconds_of(team, model, false);
    state.SetIterationTime(seconds);
    time.push_back(seconds);
    share.push_back(model.flops() / seconds / peak_flops(team));
    weights.push_back(seconds_of(team, model, true) / seconds - 1);
  }
  state.counters["us_per_layer"] = median(time) * 1e6 / o.layers;
  state.counters["GFLOP/s"] = model.flops() / median(time) / 1e9;
  state.counters["of_peak"] = median(share);
  state.counters["columns_cost"] = median(weights);
}
BENCHMARK(Prompt)
    ->ArgNames({"tokens", "slots", "threads"})
    ->Args({512, 512, 1})
    ->Args({512, 512, 2})
    ->Args({4096, 4096, 1})
    ->Args({4096, 4096, 2})
    ->Args({512, 4096, 2})
    ->Args({64, 4096, 2})
    ->Args({8, 4096, 2})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// Column sums of a whole prompt against the three-step form (EMS claims 13x over it on a GPU): the cost that each adds
// to one layer's attention.
void ColumnSums(benchmark::State& state) {
  AttentionModelOptions o;
  o.new_tokens = o.slots = static_cast<int>(state.range(0));
  o.layers = 1;
  if (state.range(2) > 0) o.weights_queries = static_cast<int>(state.range(2));
  Team team(static_cast<int>(state.range(1)));
  AttentionModel model(o);
  ThreeStep three(o.slots, o.head_dim, team.threads());
  model.run(team, true);
  three.run_head(team);
  std::vector<double> cost, ratio, steps;
  for (auto _ : state) {
    const double plain = seconds_of(team, model, false), with = seconds_of(team, model, true);
    const Stopwatch watch(team);
    three.run_head(team);
    const double all = watch.seconds() * o.kv_heads * o.group;
    state.SetIterationTime(with);
    cost.push_back(with / plain - 1);
    steps.push_back(all / plain);
    ratio.push_back(all / (with - plain));
  }
  state.counters["columns_cost"] = median(cost);
  state.counters["three_step_cost"] = median(steps);
  state.counters["three_step_over_ours"] = median(ratio);
}
BENCHMARK(ColumnSums)
    ->ArgNames({"tokens", "threads", "late"})  // late: also weights of this many last queries
    ->Args({4096, 1, 0})
    ->Args({4096, 2, 0})
    ->Args({4096, 1, 32})
    ->Args({4096, 2, 32})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// A decode step over `slots` tokens and three times as many merged into them (EMS, gamma = 4), against one over `slots`
// tokens and against one over four times as many: the min cost of expanding the cache, without copies.
void Merged(benchmark::State& state) {
  AttentionModelOptions o;
  o.slots = static_cast<int>(state.range(0));
  o.head_dim = static_cast<int>(state.range(1));
  o.group = static_cast<int>(state.range(2));
  const bool weights = state.range(4) != 0;
  o.own_positions = state.range(5) != 0;
  Team team(1);
  AttentionModel plain(o);
  o.slots *= 4;
  AttentionModel expanded(o);
  o.slots /= 4;
  o.merged = 3 * o.slots;
  o.skew = static_cast<double>(state.range(3));
  AttentionModel merged(o);
  for (AttentionModel* model : {&plain, &expanded, &merged}) model->run(team, weights);
  std::vector<double> cost, expanding;
  for (auto _ : state) {
    const double one = seconds_of(team, plain, weights), ours = seconds_of(team, merged, weights);
    state.SetIterationTime(ours);
    cost.push_back(ours / one);
    expanding.push_back(seconds_of(team, expanded, weights) / one);
  }
  state.counters["of_plain"] = median(cost);
  state.counters["expanded_of_plain"] = median(expanding);
}
BENCHMARK(Merged)
    ->ArgNames({"slots", "dims", "group", "skew", "weights", "own_positions"})
    ->ArgsProduct({{256, 1024}, {64, 128}, {1, 4}, {1}, {0, 1}, {0}})
    ->ArgsProduct({{256}, {64, 128}, {4}, {4}, {0, 1}, {0}})
    ->ArgsProduct({{256}, {64, 128}, {1, 4}, {1}, {0}, {1}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace palimpsest::bench

int main(int argc, char** argv) {
  try {
    palimpsest::limit_cpu_level();
  } catch (const palimpsest::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
