// This engine against libllama without and with flash attention, in one process, on one file, in interleaved steps. A
// loaded machine slows all three equally, so ratios are more reliable than tokens per second.
//
//   build/libllama_bench [model.gguf | synthetic shape] [threads] [depth...]
//   PALIMPSEST_SIMD=AVX2 build/libllama_bench ...           as on a lesser CPU, both (core/cpu_level.h)
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/core/cpu_level.h"
#include "palimpsest/core/error.h"
#include "palimpsest/graph/decoder.h"
#include "research/speed/libllama.h"

namespace palimpsest::bench {
namespace {

constexpr int kChunk = 512, kSteps = 64, kPrompts = 3;

using Forward = std::function<void(int)>;  // processes this many more tokens and computes the last one's logits

struct Contestant {
  std::string name;
  Forward forward;
  std::function<void()> clear;
  std::vector<double> ms = {};
};

// Interleaved rounds of `tokens` tokens, in a random order of contestants; the first round is not counted.
void race(std::vector<Contestant>& all, const char* what, int depth, int tokens, int rounds, bool clear) {
  std::vector<std::size_t> order;
  for (Contestant& c : all) {
    c.ms.clear();
    order.push_back(order.size());
  }
  std::mt19937 random(1);
  for (int round = -1; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      Contestant& c = all[i];
      if (clear) c.clear();
      const double start = now_ms();
      c.forward(tokens);
      if (round >= 0) c.ms.push_back(now_ms() - start);
    }
  }
  double best_peer = 1e300;
  for (std::size_t i = 1; i < all.size(); ++i) best_peer = std::min(best_peer, quantile(all[i].ms, 0.5));
  for (const Contestant& c : all)
    std::printf("| %s | %d | %s | %.2f | %.2f..%.2f | %.1f | %.2f |\n", what, depth, c.name.c_str(),
                quantile(c.ms, 0.5), quantile(c.ms, 0), quantile(c.ms, 0.9), 1e3 * tokens / quantile(c.ms, 0.5),
                best_peer / quantile(c.ms, 0.5));
  std::fflush(stdout);
}

void run(const std::string& file, int threads, const std::vector<int>& depths) {
  const int max = *std::max_element(depths.begin(), depths.end()) + 2 * kSteps + kChunk;
  const auto model = Model::load(file);
  Decoder decoder(model, threads);
  Cache cache(decoder.cache_options());
  std::vector<TokenId> tokens(kChunk);
  for (int i = 0; i < kChunk; ++i) tokens[static_cast<std::size_t>(i)] = i * 7 % model->hyper().vocabulary;
  const LibllamaModel peer = load_libllama_model(file);

  std::vector<Contestant> all;
  all.push_back({"palimpsest",
                 [&](int count) {
                   cache.insert(count);
                   const SequenceStep step{.cache = &cache, .tokens = std::span(tokens).first(count)};
                   decoder.step({&step, 1});
                 },
                 [&] { cache.clear(); }});
  for (const bool flash : {false, true}) {
    const LibllamaContext context = make_libllama_context(peer, threads, max, flash, kChunk);
    all.push_back({flash ? "llama.cpp, flash attention" : "llama.cpp",
                   [&tokens, context](int count) { libllama_forward(context.get(), std::span(tokens).first(count)); },
                   [context] { llama_memory_clear(llama_get_memory(context.get()), false); }});
  }

  std::printf("| test | depth | engine | ms, median | min..p90 | tokens/s | speed, best llama.cpp = 1 |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  race(all, "prompt of 512", 0, kChunk, kPrompts, true);
  for (const int depth : depths) {
    for (Contestant& c : all) {
      c.clear();
      for (int at = 0; at < depth; at += kChunk) {
        if (::isatty(STDERR_FILENO)) std::fprintf(stderr, "\r%s: reads %d of %d tokens ", c.name.c_str(), at, depth);
        c.forward(std::min(kChunk, depth - at));
      }
    }
    if (depth > 0 && ::isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K");
    race(all, "decode", depth, 1, kSteps, false);
  }
}

}  // namespace
}  // namespace palimpsest::bench

int main(int argc, char** argv) {
  using namespace palimpsest;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
  std::vector<int> depths;
  for (int i = 3; i < argc; ++i) depths.push_back(std::atoi(argv[i]));
  if (depths.empty()) depths = {0, 2048};
  try {
    limit_cpu_level();
    const bench::ModelFile file(argc > 1 ? argv[1] : "llama-3.2-1b@vocab=32000@type=q4_0");
    bench::run(file.path(), threads, depths);
  } catch (const Error& e) {
    std::fprintf(stderr, "libllama_bench: %s\n", e.what());
    return 2;
  }
  return 0;
}
