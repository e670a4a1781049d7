// The attention kernel alone, in llama-3.2-1b's shape (8 KV heads, groups of 4, 64 dimensions, 16 layers), beside what
// the machine can do: bytes per second of a plain read, multiply-adds per second in registers. Both sides alternate in
// one run, so their ratio (`of_read`, `of_peak`) holds on a machine that others use too.
//
//   attention_bench --benchmark_filter=Decode/page:64
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "bench/machine.h"
#include "bench/team.h"
#include "palimpsest/attention/cpu.h"
#include "palimpsest/attention/element.h"
#include "palimpsest/cache/pages.h"

namespace palimpsest::bench {
namespace {

// One thread is timed by its own processor time: other programs then cost it less.
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

struct ModelOptions {
  int page_size = 64, slots = 8192, new_tokens = 1;
  int head_dim = 64, kv_heads = 8, group = 4, layers = 16;
  CacheType type = CacheType::kF16;
  bool weights = false, late = false;
};

// One sequence whose last `new_tokens` are inserted and attend.
class Model {
 public:
  explicit Model(const ModelOptions& o)
      : o_(o),
        layout_{nullptr, o.kv_heads, o.head_dim, o.head_dim, o.page_size, o.type},
        pool_(page_bytes(layout_)),
        when_(static_cast<std::size_t>(o.slots)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const std::size_t heads = static_cast<std::size_t>(o.layers * o.kv_heads), pages = o.slots / o.page_size;
    std::vector<std::byte> pattern(page_bytes(layout_));
    for (std::size_t n = 0; n < pattern.size() / bytes_per_element(o.type); ++n)
      store_element(pattern.data(), o.type, n, normal(random));
    // As a cache grows: a chunk of a prompt gives each head of each layer the pages of 512 tokens.
    page_.resize(heads * pages);
    const std::size_t chunk = std::max<std::size_t>(1, 512 / o.page_size);
    for (std::size_t first = 0; first < pages; first += chunk)
      for (std::size_t h = 0; h < heads; ++h)
        for (std::size_t p = first; p < std::min(pages, first + chunk); ++p) {
          std::byte* const page = pool_.take();
          std::copy(pattern.begin(), pattern.end(), page);
          page_[h * pages + p] = page;
        }
    for (int s = 0; s < o.slots; ++s) {
      when_[s] = s;
      if (s >= o.slots - o.new_tokens) fresh_.push_back(s);
    }
    slots_ = {when_.data(), when_.data(), o.slots, o.slots, fresh_.data(), o.new_tokens};
    for (std::size_t h = 0; h < heads; ++h) head_.push_back({page_.data() + h * pages, &slots_});
    for (int l = 0; l < o.layers; ++l) {
      layer_.push_back(layout_);
      layer_.back().head = head_.data() + l * o.kv_heads;
    }

    RopeOptions rope;
    rope.dims = o.head_dim;
    const RopeFrequencies frequencies(rope);
    rows_.resize(static_cast<std::size_t>(o.slots) * o.head_dim);
    for (int s = 0; s < o.slots; ++s) frequencies.row(s, rows_.data() + static_cast<std::size_t>(s) * o.head_dim);
    const int first = o.slots - o.new_tokens;
    tokens_.count = o.new_tokens;
    tokens_.when = when_.data() + first;
    tokens_.position = first;
    tokens_.key_row = rows_.data() + static_cast<std::size_t>(first) * o.head_dim;
    tokens_.rank_row = rows_.data();

    const int query_heads = o.kv_heads * o.group;
    const auto fill = [&](std::vector<float>& x, int heads_of) {
      x.resize(static_cast<std::size_t>(o.new_tokens) * heads_of * o.head_dim);
      for (float& value : x) value = normal(random);
    };
    fill(q_, query_heads);
    fill(k_, o.kv_heads);
    fill(v_, o.kv_heads);
    out_.resize(q_.size());
    weights_.resize(static_cast<std::size_t>(o.kv_heads), std::vector<float>(o.slots));
    for (std::vector<float>& w : weights_) weights_of_.push_back(w.data());
    step_.shape = {query_heads, o.kv_heads,       o.head_dim, o.head_dim,
                   0.125f,      RopeKind::kPairs, o.head_dim, o.late ? Rotation::kLate : Rotation::kAtWrite};
    step_.tokens = &tokens_;
    step_.sequences = 1;
    step_.q = {q_.data(), query_heads * o.head_dim, o.head_dim};
    step_.k = {k_.data(), o.kv_heads * o.head_dim, o.head_dim};
    step_.v = {v_.data(), o.kv_heads * o.head_dim, o.head_dim};
    step_.out = {out_.data(), query_heads * o.head_dim, o.head_dim};
  }
  ~Model() {
    for (std::byte* page : page_) pool_.give_back(page);
  }

  // Seconds of one step through all layers.
  double run(Team& team, bool weights) {
    std::vector<AttentionStep> steps;
    for (int l = 0; l < o_.layers; ++l) {
      steps.push_back(step_);
      steps.back().layer = l;
      steps.back().cache = &layer_[l];
      if (weights) steps.back().weights = weights_of_.data();
      scratch_.reserve(steps.back(), team.threads());
    }
    const Stopwatch watch(team);
    team.run([&](int t) {
      for (const AttentionStep& step : steps) {
        attention_cpu(step, scratch_, t, team.threads());
        team.barrier();
      }
    });
    return watch.seconds();
  }
  double cache_bytes() const {
    return 2.0 * o_.layers * o_.kv_heads * o_.slots * o_.head_dim * bytes_per_element(o_.type);
  }
  // Multiply-adds that causality leaves, times two.
  double flops() const {
    const double old = o_.slots - o_.new_tokens, n = o_.new_tokens;
    return 4.0 * o_.layers * o_.kv_heads * o_.group * o_.head_dim * (n * old + n * (n + 1) / 2);
  }

 private:
  ModelOptions o_;
  LayerView layout_;
  PagePool pool_;
  std::vector<std::byte*> page_;
  std::vector<std::int32_t> when_;
  std::vector<int> fresh_;
  SlotsView slots_;
  std::vector<HeadPages> head_;
  std::vector<LayerView> layer_;
  StepTokens tokens_;
  std::vector<float> rows_, q_, k_, v_, out_;
  std::vector<std::vector<float>> weights_;
  std::vector<float*> weights_of_;
  AttentionStep step_;
  AttentionScratch scratch_;
};

// page size, slots, threads, type
void Decode(benchmark::State& state) {
  ModelOptions o;
  o.page_size = static_cast<int>(state.range(0));
  o.slots = static_cast<int>(state.range(1));
  o.type = static_cast<CacheType>(state.range(3));
  Team team(static_cast<int>(state.range(2)));
  ReadLimit limit(team);
  Model model(o);
  model.run(team, true);
  std::vector<double> plain, share, weights;
  for (auto _ : state) {
    const double seconds = model.run(team, false);
    state.SetIterationTime(seconds);
    plain.push_back(seconds);
    share.push_back(model.cache_bytes() / seconds / limit.bytes_per_second());
    weights.push_back(model.run(team, true) / seconds - 1);
  }
  state.counters["us_per_layer"] = median(plain) * 1e6 / o.layers;
  state.counters["GB/s"] = model.cache_bytes() / median(plain) / 1e9;
  state.counters["of_read"] = median(share);
  state.counters["weights_cost"] = median(weights);
}
BENCHMARK(Decode)
    ->ArgNames({"page", "slots", "threads", "type"})
    ->ArgsProduct({{16, 64, 128, 256}, {8192}, {1, 2}, {static_cast<int>(CacheType::kF16)}})
    ->Args({64, 2048, 2, static_cast<int>(CacheType::kF16)})
    ->Args({64, 256, 2, static_cast<int>(CacheType::kF16)})
    ->Args({64, 8192, 2, static_cast<int>(CacheType::kF32)})
    ->Args({64, 8192, 2, static_cast<int>(CacheType::kBF16)})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// Keys rotated while they are read, against keys stored rotated.
void DecodeLate(benchmark::State& state) {
  ModelOptions o;
  o.slots = static_cast<int>(state.range(0));
  Team team(static_cast<int>(state.range(1)));
  Model plain(o);
  o.late = true;
  Model late(o);
  plain.run(team, false), late.run(team, false);
  std::vector<double> cost;
  for (auto _ : state) {
    const double seconds = late.run(team, false);
    state.SetIterationTime(seconds);
    cost.push_back(seconds / plain.run(team, false) - 1);
  }
  state.counters["rotation_cost"] = median(cost);
}
BENCHMARK(DecodeLate)
    ->ArgNames({"slots", "threads"})
    ->ArgsProduct({{256, 8192}, {1, 2}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// new tokens, slots, threads
void Prompt(benchmark::State& state) {
  ModelOptions o;
  o.new_tokens = static_cast<int>(state.range(0));
  o.slots = static_cast<int>(state.range(1));
  o.layers = 2;
  Team team(static_cast<int>(state.range(2)));
  Model model(o);
  model.run(team, false);
  std::vector<double> time, share;
  for (auto _ : state) {
    const double seconds = model.run(team, false);
    state.SetIterationTime(seconds);
    time.push_back(seconds);
    share.push_back(model.flops() / seconds / peak_flops(team));
  }
  state.counters["us_per_layer"] = median(time) * 1e6 / o.layers;
  state.counters["GFLOP/s"] = model.flops() / median(time) / 1e9;
  state.counters["of_peak"] = median(share);
}
BENCHMARK(Prompt)
    ->ArgNames({"tokens", "slots", "threads"})
    ->Args({512, 512, 1})
    ->Args({512, 512, 2})
    ->Args({512, 4096, 2})
    ->Args({64, 4096, 2})
    ->Args({8, 4096, 2})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace palimpsest::bench

BENCHMARK_MAIN();
