#include "research/speed/attention_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "palimpsest/cache/view.h"

namespace palimpsest::bench {
namespace {

LayerView layout_of(const AttentionModelOptions& o) {
  return {nullptr,     o.kv_heads, o.head_dim, o.head_dim,
          o.page_size, o.type,     o.type,     o.rotation == KeyRotation::kCachedHalf};
}

Rotation rotation_of(KeyRotation rotation) {
  if (rotation == KeyRotation::kOnWrite) return Rotation::kOnWrite;
  return rotation == KeyRotation::kMaterialized ? Rotation::kMaterialized : Rotation::kOnRead;
}

}  // namespace

AttentionModel::AttentionModel(const AttentionModelOptions& o)
    : o_(o),
      layout_(layout_of(o)),
      pool_(page_bytes(layout_)),
      relative_(static_cast<std::size_t>(o.slots)),
      rank_(static_cast<std::size_t>(o.slots)) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto count = [](auto... n) { return (static_cast<std::size_t>(n) * ...); };
  const std::size_t heads = count(o.layers, o.batch, o.kv_heads), pages = count(o.slots / o.page_size);
  std::vector<std::byte> pattern(page_bytes(layout_));
  std::vector<float> row(count(o.head_dim));
  for (int s = 0; s < o.page_size; ++s) {
    for (float& x : row) x = normal(random);
    store_key(layout_, pattern.data(), s, row.data());
    for (float& x : row) x = normal(random);
    store_value(layout_, pattern.data(), s, row.data());
  }
  // Pages are allocated as in prefill: a chunk of 512 tokens for each head of each layer.
  page_.resize(heads * pages);
  const std::size_t chunk = std::max<std::size_t>(1, count(512 / o.page_size));
  for (std::size_t first = 0; first < pages; first += chunk)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t p = first; p < std::min(pages, first + chunk); ++p) {
        const PageId page = pool_.take();
        std::copy(pattern.begin(), pattern.end(), pool_.address(page));
        page_[h * pages + p] = page;
      }

  const int first = o.slots - o.new_tokens;
  std::iota(relative_.begin(), relative_.end(), 0);
  rank_ = relative_;
  std::shuffle(rank_.begin(), rank_.begin() + first, random);
  inserted_.resize(count(o.new_tokens));
  std::iota(inserted_.begin(), inserted_.end(), first);
  slots_ = {.relative = relative_.data(),
            .rank = rank_.data(),
            .slots = o.slots,
            .occupied = o.slots,
            .inserted = inserted_.data(),
            .inserted_count = o.new_tokens};
  if (o.merged > 0) {
    for (int i = 0; i < o.merged; ++i) {
      const double u = std::uniform_real_distribution<double>(0, 1)(random);
      merged_.add({.position = static_cast<Position>(random() % static_cast<unsigned>(o.slots)),
                   .slot = static_cast<int>(std::pow(u, o.skew) * first),
                   .factor = std::exp(0.2F * normal(random))},
                  {});
    }
    SlotTable table(o.page_size, Mechanism::kMerge, false);
    table.insert(o.slots);
    if (o.own_positions) merged_.reserve(0, 0, true, 0);
    merged_.build_layout(table);
    merged_view_ = merged_.view();
    slots_.merged = &merged_view_;
  }
  for (std::size_t h = 0; h < heads; ++h)
    head_.push_back({{page_.data() + h * pages, pool_.base(), pool_.stride()}, &slots_});
  for (int l = 0; l < o.layers * o.batch; ++l) {
    layer_.push_back(layout_);
    layer_.back().head = head_.data() + l * o.kv_heads;
  }

  RopeOptions rope;
  rope.dims = o.head_dim;
  const RopeFrequencies frequencies(rope);
  rows_.resize(count(o.slots, o.head_dim));
  for (int s = 0; s < o.slots; ++s) frequencies.row(s, rows_.data() + count(s, o.head_dim));
  for (int b = 0; b < o.batch; ++b) {
    SequenceTokens t;
    t.first = b * o.new_tokens;
    t.count = o.new_tokens;
    t.weights_queries = o.weights_queries;
    t.relative = relative_.data() + first;
    t.position = first;
    t.key_row = rows_.data() + count(first, o.head_dim);
    t.rank_row = rows_.data();
    if (o.own_positions) t.distance_row = rows_.data();
    tokens_.push_back(t);
  }

  const int query_heads = o.kv_heads * o.group;
  const auto fill = [&](std::vector<float>& x, int heads_of) {
    x.resize(count(o.batch, o.new_tokens, heads_of, o.head_dim));
    for (float& value : x) value = normal(random);
  };
  fill(q_, query_heads);
  fill(k_, o.kv_heads);
  fill(v_, o.kv_heads);
  out_.resize(q_.size());
  weights_.resize(count(o.kv_heads, o.batch), std::vector<float>(count(o.slots + merged_view_.entries())));
  for (std::vector<float>& w : weights_) weights_of_.push_back(w.data());
  sums_ = weights_;
  for (std::vector<float>& w : sums_) sums_of_.push_back(w.data());
  step_.shape = {query_heads, o.kv_heads, o.head_dim, o.head_dim, 0.125F, RopeKind::kPairs, o.head_dim};
  for (SequenceTokens& tokens : tokens_) tokens.rotation = rotation_of(o.rotation);
  step_.tokens = tokens_.data();
  step_.sequences = o.batch;
  step_.q = {q_.data(), query_heads * o.head_dim, o.head_dim};
  step_.k = {k_.data(), o.kv_heads * o.head_dim, o.head_dim};
  step_.v = {v_.data(), o.kv_heads * o.head_dim, o.head_dim};
  step_.out = {out_.data(), query_heads * o.head_dim, o.head_dim};
  if (o.rotation == KeyRotation::kOnWrite || o.rotation == KeyRotation::kOnReadPerHead) return;
  rank_tiles_.resize(rank_tile_floats(step_.shape, slots_));
  rank_tiles_of_.assign(count(o.batch), rank_tiles_.data());
  step_.rank_tiles = rank_tiles_of_.data();
}

AttentionModel::~AttentionModel() {
  for (const PageId page : page_) pool_.release(page);
}

void AttentionModel::run(Team& team, bool weights) {
  std::vector<LayerStep> steps;
  for (int l = 0; l < o_.layers; ++l) {
    steps.push_back(step_);
    steps.back().layer = l;
    steps.back().cache = layer_.data() + l * o_.batch;
    if (weights) steps.back().weights = weights_of_.data();
    if (weights && o_.weights_queries != INT32_MAX) steps.back().sums = sums_of_.data();
  }
  for (const LayerStep& step : steps) scratch_.reserve(step, team.threads());
  if (!rank_tiles_.empty())
    for (int b = 0; b < o_.batch; ++b) make_rank_tiles(step_.shape, rows_.data(), slots_, rank_tiles_.data());
  team.run([&](int t) {
    for (const LayerStep& step : steps) {
      attention_cpu(step, scratch_, t, team.threads());
      team.barrier();
    }
  });
}

double AttentionModel::cache_bytes() const {
  return static_cast<double>(page_.size()) * static_cast<double>(page_bytes(layout_));
}

double AttentionModel::flops() const {
  const double old = o_.slots - o_.new_tokens, n = o_.new_tokens;
  return 4.0 * o_.batch * o_.layers * o_.kv_heads * o_.group * o_.head_dim * (n * old + n * (n + 1) / 2);
}

}  // namespace palimpsest::bench
