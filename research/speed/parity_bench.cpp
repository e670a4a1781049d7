// One layer's attention after evictions in place, for comparison with another implementation in double precision
// (EQUIP, appendix D.7; research/papers/torch_baselines.py): f32 cache, slots in random order of ranks, one query per
// head. Prints JSON: inputs, the outputs of the SIMD path and of the reference, and the keys rotated by their ranks.
//
//   parity_bench [--heads N] [--tokens N] [--head-size N]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/attention/cpu.h"
#include "palimpsest/attention/read_rows.h"
#include "palimpsest/attention/reference.h"
#include "palimpsest/attention/rotate_keys.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/speed/fill.h"
#include "research/speed/flags.h"

namespace palimpsest::bench {
namespace {

void run(Flags& flags) {
  const int heads = flags.number("--heads", 4), tokens = flags.number("--tokens", 512);
  const int dim = flags.number("--head-size", 64);
  flags.done("research/speed/parity_bench.cpp");
  CacheOptions options;
  options.geometry = HeadGeometry::uniform(1, heads, dim, dim, CacheType::kF32);
  options.page_size = 64;
  options.track_rank = true;
  Cache cache(options);
  cache.insert(tokens - 1);
  fill_pages_with_noise(cache, 1);
  cache.insert(1);

  // Each head has evicted other tokens, so the ranks of its slots are in another order; the newest rank is the last.
  std::mt19937 random(1);
  std::vector<std::vector<std::int32_t>> ranks;
  std::vector<SlotsView> slots;
  std::vector<HeadPages> pages;
  LayerView view = cache.view(0);
  for (int h = 0; h < heads; ++h) {
    ranks.emplace_back(static_cast<std::size_t>(tokens));
    std::iota(ranks.back().begin(), ranks.back().end(), 0);
    std::shuffle(ranks.back().begin(), ranks.back().end() - 1, random);
    slots.push_back(*view.head[h].slots);
  }
  for (int h = 0; h < heads; ++h) {
    const auto at = static_cast<std::size_t>(h);
    slots[at].rank = ranks[at].data();
    pages.push_back({view.head[h].page, &slots[at]});
  }
  view.head = pages.data();

  RopeOptions rope;
  rope.dims = dim;
  rope.kind = RopeKind::kHalves;
  const RopeFrequencies frequencies(rope);
  const auto width = static_cast<std::size_t>(dim), rows = static_cast<std::size_t>(tokens);
  const std::size_t all = static_cast<std::size_t>(heads) * width;
  std::vector<float> rank_row(rows * width), q(all), k(all), v(all), simd(all), reference(all);
  for (int r = 0; r < tokens; ++r) frequencies.row(r, rank_row.data() + static_cast<std::size_t>(r) * width);
  std::normal_distribution<float> normal;
  for (std::vector<float>* x : {&q, &k, &v})
    for (float& value : *x) value = normal(random);
  const std::int32_t newest = tokens - 1;
  SequenceTokens step_tokens;
  step_tokens.count = 1;
  step_tokens.relative = &newest;
  step_tokens.position = newest;
  step_tokens.rank_row = rank_row.data();
  step_tokens.rotation = Rotation::kOnRead;
  LayerStep step;
  step.shape.query_heads = step.shape.kv_heads = heads;
  step.shape.head_dim = step.shape.value_dim = step.shape.rope_dims = dim;
  step.shape.scale = static_cast<float>(1 / std::sqrt(dim));
  step.shape.rope = rope.kind;
  step.cache = &view;
  step.tokens = &step_tokens;
  step.sequences = 1;
  const auto row = static_cast<std::int64_t>(all);
  step.q = {q.data(), row, dim};
  step.k = {k.data(), row, dim};
  step.v = {v.data(), row, dim};
  step.out = {simd.data(), row, dim};
  AttentionScratch scratch;
  scratch.reserve(step, 1);
  attention_cpu(step, scratch, 0, 1);
  step.out = {reference.data(), row, dim};
  attend_reference(step);

  nlohmann::json out = {{"heads", heads}, {"tokens", tokens}, {"head_size", dim}, {"scale", step.shape.scale},
                        {"query", q},     {"rank", ranks},    {"simd", simd},     {"reference", reference}};
  std::vector<float> read(rows * width);
  for (const HeadPages& head : pages) {
    read_keys(view, head, read.data());
    out["keys"].push_back(read);
    read_values(view, head, read.data());
    out["values"].push_back(read);
  }
  for (std::size_t h = 0; h < pages.size(); ++h) {
    for (int slot = 0; slot < tokens; ++slot) {
      const int rank = ranks[h][static_cast<std::size_t>(slot)];
      rotate_keys(view, pages[h], rope.kind, dim, slot, slot + 1,
                  rank_row.data() + static_cast<std::size_t>(rank) * width);
    }
    read_keys(view, pages[h], read.data());
    out["rotated"].push_back(read);
  }
  std::printf("%s\n", out.dump().c_str());
}

}  // namespace
}  // namespace palimpsest::bench

int main(int argc, char** argv) {
  return palimpsest::bench::bench_main("parity_bench", argc, argv, palimpsest::bench::run);
}
