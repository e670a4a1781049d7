// Cost of the order of slots for rotation in the attention kernel (EQUIP, table 6): ranks are contiguous, random but
// equal in all sequences, or random in each sequence. One layer, one new token per sequence, interleaved rounds. Prints
// JSON.
//
//   rope_bench [--rows 1x32x4096,8x64x16384] [--head-size N] [--type f32|f16|bf16] [--threads N] [--rounds N]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/attention/cpu.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/speed/fill.h"
#include "research/speed/flags.h"
#include "research/speed/team.h"

namespace palimpsest::bench {
namespace {

enum Pattern { kUnrotated, kContiguous, kRandom, kRandomEach, kPatterns };
constexpr const char* kNames[] = {"not rotated", "contiguous", "random, shared", "random, each sequence"};

class Layer {
 public:
  Layer(int sequences, int heads, int tokens, int dim, CacheType type) : sequences_(sequences), heads_(heads) {
    CacheOptions options;
    options.geometry = HeadGeometry::uniform(1, heads, dim, dim, type);
    options.page_size = 64;
    options.track_rank = true;
    std::mt19937 random(1);
    const auto pool = std::make_shared<PagePool>(std::size_t{64} * 2 * dim * (kv_format(type).tile_bytes / kTile));
    for (int s = 0; s < sequences; ++s) {
      cache_.push_back(std::make_unique<Cache>(options, pool));
      cache_.back()->insert(tokens - 1);
      fill_pages_with_noise(*cache_.back(), static_cast<std::uint32_t>(s));
      cache_.back()->insert(1);
    }
    RopeOptions rope;
    rope.dims = dim;
    const RopeFrequencies frequencies(rope);
    rows_.resize(static_cast<std::size_t>(tokens) * dim);
    for (int r = 0; r < tokens; ++r) frequencies.row(r, rows_.data() + static_cast<std::size_t>(r) * dim);
    relative_ = tokens - 1;

    std::vector<std::int32_t> order(static_cast<std::size_t>(tokens));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (int s = 0; s < sequences; ++s) {
      ranks_.push_back(order);
      std::shuffle(ranks_.back().begin(), ranks_.back().end(), random);
      const SlotsView own = *cache_[s]->view(0).head->slots;
      for (int p = 0; p < kPatterns; ++p) {
        slots_[p].push_back(own);
        if (p == kRandom) slots_[p].back().rank = ranks_.front().data();
        if (p == kRandomEach) slots_[p].back().rank = ranks_.back().data();
      }
      tokens_.push_back({});
      tokens_.back().first = s;
      tokens_.back().count = 1;
      tokens_.back().relative = &relative_;
      tokens_.back().position = relative_;
      tokens_.back().rank_row = rows_.data();
    }
    ranks_.resize(static_cast<std::size_t>(sequences));
    for (int p = 0; p < kPatterns; ++p)
      for (int s = 0; s < sequences; ++s) {
        pages_[p].emplace_back();
        for (int h = 0; h < heads; ++h) pages_[p].back().push_back({cache_[s]->view(0).head[h].page, &slots_[p][s]});
        view_[p].push_back(cache_[s]->view(0));
        view_[p].back().head = pages_[p].back().data();
      }
    std::normal_distribution<float> normal;
    for (std::vector<float>* x : {&q_, &k_, &v_, &out_}) {
      x->resize(static_cast<std::size_t>(sequences) * heads * dim);
      for (float& value : *x) value = normal(random);
    }
    step_.shape.query_heads = step_.shape.kv_heads = heads;
    step_.shape.head_dim = step_.shape.value_dim = step_.shape.rope_dims = dim;
    step_.shape.scale = 0.1F;
    step_.shape.rope = RopeKind::kPairs;
    step_.tokens = tokens_.data();
    step_.sequences = sequences;
    const std::int64_t row = std::int64_t{heads} * dim;
    step_.q = {q_.data(), row, dim};
    step_.k = {k_.data(), row, dim};
    step_.v = {v_.data(), row, dim};
    step_.out = {out_.data(), row, dim};
  }

  double seconds(Team& team, int pattern) {
    for (SequenceTokens& tokens : tokens_)
      tokens.rotation = pattern == kUnrotated ? Rotation::kNever : Rotation::kOnRead;
    step_.cache = view_[pattern].data();
    scratch_.reserve(step_, team.threads());
    const auto start = std::chrono::steady_clock::now();
    team.run([&](int t) { attention_cpu(step_, scratch_, t, team.threads()); });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  int sequences_, heads_;
  std::int32_t relative_;
  std::vector<std::unique_ptr<Cache>> cache_;
  std::vector<std::vector<std::int32_t>> ranks_;
  std::vector<SlotsView> slots_[kPatterns];
  std::vector<std::vector<HeadPages>> pages_[kPatterns];
  std::vector<LayerView> view_[kPatterns];
  std::vector<SequenceTokens> tokens_;
  std::vector<float> rows_, q_, k_, v_, out_;
  LayerStep step_;
  AttentionScratch scratch_;
};

void run(Flags& flags) {
  const std::string rows = flags.text("--rows", "1x32x4096,1x32x16384,1x64x4096,1x64x16384");
  const int dim = flags.number("--head-size", 128), rounds = flags.number("--rounds", 7);
  const CacheType type = flags.type("--type", CacheType::kF16);
  const int threads = flags.number("--threads", 2);
  flags.done("research/speed/rope_bench.cpp");
  Team team(threads);
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [batch, heads, tokens] : flags.triples("--rows", rows)) {
    Layer layer(batch, heads, tokens, dim, type);
    nlohmann::json seconds;
    for (int round = -1; round < rounds; ++round)
      for (int p = 0; p < kPatterns; ++p) {
        const double s = layer.seconds(team, p);
        if (round >= 0) seconds[kNames[p]].push_back(s);
      }
    out.push_back({{"batch", batch}, {"heads", heads}, {"tokens", tokens}, {"seconds", seconds}});
  }
  std::printf("%s\n", out.dump().c_str());
}

}  // namespace
}  // namespace palimpsest::bench

int main(int argc, char** argv) {
  return palimpsest::bench::bench_main("rope_bench", argc, argv, palimpsest::bench::run);
}
