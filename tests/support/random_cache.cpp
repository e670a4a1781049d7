#include "tests/support/random_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "palimpsest/attention/cpu.h"
#include "palimpsest/cache/view.h"

namespace palimpsest::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Score biases: most are small, some dominate the scores, some are -infinity.
std::vector<float> random_biases(std::size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> biases(count);
  for (float& b : biases) {
    const auto kind = random() % 16;
    b = kind == 0 ? -INFINITY : kind == 1 ? -100 : kind == 2 ? 8 * normal(random) : normal(random);
  }
  return biases;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const RandomCacheOptions& o) {
  return out << kv_format(o.type).name << " heads " << o.kv_heads << "x" << o.group << " dims " << o.head_dim << "/"
             << o.value_dim << " page " << o.page_size << " sequences " << o.sequences << " tokens " << o.old_tokens
             << "+" << o.new_tokens << " dead " << o.empty_slots << " null " << o.null_pages << " own " << o.own_slots
             << o.own_budgets << " rotation " << static_cast<int>(o.rotation) << " rope " << static_cast<int>(o.rope)
             << "/" << o.rope_dims << " window " << o.window << " sinks " << o.sinks << " two " << o.two_queries
             << " by rank " << o.rank_keys << " merged " << o.merged << o.own_positions << " weights " << o.weights
             << o.sums << "/" << o.weights_queries << " in " << o.weights_rows.size() << " drafts " << o.drafts
             << " as " << static_cast<int>(o.weight_reduction) << " local " << o.local << " cap " << o.soft_cap
             << " alibi " << o.alibi << o.rank_distance << " bias " << o.bias << " sink logits " << o.sink_logits
             << " query factor " << o.query_factor << " chunked " << o.chunked << " half " << o.rotated_half
             << " tiles " << o.rank_tiles << " base " << o.base << " seed " << o.seed;
}

RandomCache::RandomCache(const RandomCacheOptions& o) : options_(o) {
  std::mt19937 random(o.seed);
  std::mt19937 bias_random(o.seed + 1'000'000);
  std::normal_distribution<float> normal;
  const auto share = [&](double p) { return std::bernoulli_distribution(p)(random); };
  const auto fill = [&](std::vector<float>& x, int count) {
    x.resize(static_cast<std::size_t>(count));
    for (float& value : x) value = normal(random);
  };

  const LayerView layout{
      nullptr, o.kv_heads, o.head_dim, o.value_dim, o.page_size, o.type, o.value_type.value_or(o.type), o.rotated_half};
  const std::size_t page_bytes = palimpsest::page_bytes(layout);
  sequence_.resize(static_cast<std::size_t>(o.sequences));
  tokens_.resize(sequence_.size());
  layer_.assign(sequence_.size(), layout);

  // Slots first, then bytes for all pages.
  std::size_t pages = 0;
  int first = 0;
  for (std::size_t n = 0; n < sequence_.size(); ++n) {
    Sequence& sequence = sequence_[n];
    const int inserted = std::max(1, o.new_tokens - 3 * static_cast<int>(n));
    const int old = std::max(0, o.old_tokens - 37 * static_cast<int>(n));
    sequence.head.resize(static_cast<std::size_t>(o.kv_heads));
    sequence.relative.resize(static_cast<std::size_t>(inserted));
    std::iota(sequence.relative.begin(), sequence.relative.end(),
              2 * old + 1);  // old tokens have gaps: some were dropped
    for (std::size_t h = 0; h < sequence.head.size(); ++h) {
      Head& head = sequence.head[h];
      if (h > 0 && !o.own_slots) {
        head.relative = sequence.head[0].relative;
        head.rank = sequence.head[0].rank;
        head.inserted = sequence.head[0].inserted;
        head.page.resize(sequence.head[0].page.size());
        for (std::size_t p = 0; p < head.page.size(); ++p) pages += sequence.head[0].page[p] != kNoPage;
        continue;
      }
      std::vector<int> usable;
      // With its own budget, a head has evicted its oldest tokens except the sinks.
      const int gone =
          o.own_slots && o.own_budgets ? std::max(0, old - o.sinks) * static_cast<int>(random() % 100) / 100 : 0;
      while (static_cast<int>(usable.size()) < old - gone + inserted) {
        const int begin = static_cast<int>(head.relative.size());
        const bool null = share(o.null_pages);
        for (int s = begin; s < begin + o.page_size; ++s) {
          head.relative.push_back(kEmptySlot);
          if (!null && !share(o.empty_slots)) usable.push_back(s);
        }
        head.page.push_back(null ? kNoPage : 0);
        pages += !null;
      }
      head.rank.assign(head.relative.size(), -1);
      std::shuffle(usable.begin(), usable.end(), random);
      for (int t = 0, rank = 0; t < old + inserted; ++t) {
        if (t >= o.sinks && t < std::min(o.sinks, old) + gone) continue;
        const int slot = usable[rank];
        // Sinks are 0 .. sinks - 1; the others have random gaps and distinct positions.
        head.relative[slot] = t >= old      ? sequence.relative[t - old]
                              : t < o.sinks ? t
                                            : 2 * t + static_cast<int>(share(0.5));
        head.rank[slot] = rank++;
        if (t >= old) head.inserted.push_back(slot);
      }
    }
    tokens_[n].first = first;
    tokens_[n].count = inserted;
    tokens_[n].weights_queries = o.weights_queries;
    tokens_[n].weights_rows = options_.weights_rows;
    tokens_[n].weight_reduction = o.weight_reduction;
    tokens_[n].drafts = o.drafts;
    tokens_[n].relative = sequence.relative.data();
    first += inserted;
  }

  bytes_.resize(pages * page_bytes);
  const auto fill_with_nan = [](std::byte* data, std::size_t bytes, CacheType type) {
    // Grouped formats: the scales, in f16.
    const KvFormat& format = kv_format(kv_format(type).elementwise() ? type : CacheType::kF16);
    for (std::size_t at = 0; at < bytes * kTile / static_cast<std::size_t>(format.tile_bytes); ++at)
      format.store(data, at, kNan);
  };
  for (std::size_t page = 0; page < pages; ++page) {
    std::byte* const at = bytes_.data() + page * page_bytes;
    fill_with_nan(at, value_offset(layout), layout.key_type);
    fill_with_nan(at + value_offset(layout), page_bytes - value_offset(layout), layout.value_type);
  }
  PageId next = 0;
  for (std::size_t n = 0; n < sequence_.size(); ++n) {
    Sequence& sequence = sequence_[n];
    for (std::size_t h = 0; h < sequence.head.size(); ++h) {
      Head& head = sequence.head[h];
      for (std::size_t p = 0; p < head.page.size(); ++p) {
        const bool none = (h > 0 && !o.own_slots ? sequence.head[0].page[p] : head.page[p]) == kNoPage;
        head.page[p] = none ? kNoPage : next++;
      }
      int occupied = 0;
      for (std::size_t s = 0; s < head.relative.size(); ++s) {
        if (head.relative[s] == kEmptySlot) continue;
        ++occupied;
        if (head.relative[s] >= sequence.relative[0]) continue;  // to be inserted
        std::byte* const page = bytes_.data() + static_cast<std::size_t>(head.page[s / o.page_size]) * page_bytes;
        const int offset = static_cast<int>(s) % o.page_size;
        std::vector<float> row;
        fill(row, o.head_dim);
        store_key(layout, page, offset, row.data());
        for (int p = 0; o.rotated_half && p < o.rope_dims / 2; ++p) {
          const bool halves = o.rope == RopeKind::kHalves;
          const std::size_t a = key_index(layout, offset, halves ? p : 2 * p);
          const std::size_t b = key_index(layout, offset, halves ? p + o.rope_dims / 2 : 2 * p + 1);
          kv_format(o.type).store(page + half_offset(layout), a, -kv_format(o.type).load(page, b));
          kv_format(o.type).store(page + half_offset(layout), b, kv_format(o.type).load(page, a));
        }
        fill(row, o.value_dim);
        store_value(layout, page, offset, row.data());
      }
      head.slots = {.relative = head.relative.data(),
                    .rank = head.rank.data(),
                    .slots = static_cast<int>(head.relative.size()),
                    .occupied = occupied,
                    .inserted = head.inserted.data(),
                    .inserted_count = static_cast<int>(head.inserted.size())};
      if (o.bias) {
        head.bias = random_biases(head.relative.size(), bias_random);
        for (std::size_t s = 0; s < head.relative.size(); ++s)
          if (head.relative[s] == kEmptySlot) head.bias[s] = kNan;
        head.slots.bias = head.bias.data();
      }
      if (o.merged == 0 || occupied == static_cast<int>(head.inserted.size())) continue;
      std::vector<int> old;
      for (std::size_t s = 0; s < head.relative.size(); ++s)
        if (head.relative[s] < sequence.relative[0]) old.push_back(static_cast<int>(s));
      SlotTable table(o.page_size, Mechanism::kMerge, false);
      table.insert(head.slots.slots);
      head.merged.reserve(0, 0, o.own_positions, 0);
      for (int i = 0; i < o.merged; ++i) {
        const double u = std::uniform_real_distribution<double>(0, 1)(random), skew = h % 2 == 0 ? 1 : 4;
        const int slot = old[static_cast<std::size_t>(std::pow(u, skew) * static_cast<double>(old.size()))];
        const Position away = static_cast<int>(random() % 201) - 100;
        head.merged.add({.position = table.position()[static_cast<std::size_t>(slot)] + away,
                         .slot = slot,
                         .factor = std::exp(0.25F * normal(random))},
                        {});
      }
      head.merged.build_layout(table);
      head.merged_view = head.merged.view();
      head.slots.merged = &head.merged_view;
    }
    for (Head& head : sequence.head)
      sequence.pages.push_back(
          {{head.page.data(), bytes_.data(), page_bytes}, o.own_slots ? &head.slots : &sequence.head[0].slots});
    layer_[n].head = sequence.pages.data();

    SequenceTokens& t = tokens_[n];
    t.position = o.base + t.relative[0];
    t.window = o.window;
    if (o.own_budgets && o.window != INT32_MAX) {
      for (int h = 0; h < o.kv_heads; ++h)
        sequence.head_window.push_back(h % 3 == 2 ? INT32_MAX : o.window + static_cast<int>(random() % o.window));
      t.head_window = sequence.head_window;
    }
    t.rank_distance = o.rank_distance;
    t.sinks = o.sinks;
    if (o.sinks > 0) t.sink_end = o.sinks;
    if (o.rope != RopeKind::kNone && o.rotation != Rotation::kNever) {
      RopeOptions rope;
      rope.kind = o.rope;
      rope.dims = o.rope_dims;
      const RopeFrequencies frequencies(rope);
      const auto add = [&](std::vector<float>& rows, Position position) {
        rows.resize(rows.size() + static_cast<std::size_t>(o.rope_dims));
        frequencies.row(position, rows.data() + rows.size() - o.rope_dims);
      };
      for (int q = 0; q < t.count; ++q) add(sequence.key_row, o.base + t.relative[q]);
      int ranks = o.window == INT32_MAX ? 0 : o.sinks + 2 * o.window;
      for (const Head& head : sequence.head) ranks = std::max(ranks, head.slots.occupied);
      for (int r = 0; r < ranks; ++r) add(sequence.rank_row, r);
      t.rank_row = sequence.rank_row.data();
      for (int d = 0; o.own_positions && d <= 100; ++d) add(sequence.distance_row, d);
      if (o.own_positions) t.distance_row = sequence.distance_row.data();
      if (o.rotation == Rotation::kOnWrite && !o.rank_keys) t.key_row = sequence.key_row.data();
    }
    t.two_query = o.two_queries;
    t.rotation = o.rotation;
  }

  // Activations with gaps between heads and tokens, as in a fused matrix product.
  const int query_heads = o.kv_heads * o.group;
  fill(q_, first * query_heads * (o.head_dim + 3));
  fill(k_, first * o.kv_heads * (o.head_dim + 1));
  fill(v_, first * o.kv_heads * o.value_dim);
  out_.resize(static_cast<std::size_t>(first * query_heads * o.value_dim));
  step_.shape = {query_heads, o.kv_heads, o.head_dim, o.value_dim, 1 / std::sqrt(static_cast<float>(o.head_dim)),
                 o.rope,      o.rope_dims};
  for (int h = 0; o.alibi && h < query_heads; ++h)
    alibi_.push_back(std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(query_heads)));
  step_.shape.alibi = o.alibi ? alibi_.data() : nullptr;
  if (o.sink_logits) sink_logits_ = random_biases(static_cast<std::size_t>(query_heads), bias_random);
  step_.shape.sink_logits = o.sink_logits ? sink_logits_.data() : nullptr;
  step_.shape.soft_cap = o.soft_cap;
  if (o.query_factor) query_factor_ = random_biases(static_cast<std::size_t>(o.head_dim), bias_random);
  for (float& factor : query_factor_) factor = 1 + 0.5F * std::tanh(factor);  // of any size
  step_.shape.query_factor = o.query_factor ? query_factor_.data() : nullptr;
  step_.local = o.local;
  step_.chunked = o.chunked;
  step_.cache = layer_.data();
  step_.tokens = tokens_.data();
  step_.sequences = o.sequences;
  step_.q = {q_.data(), query_heads * (o.head_dim + 3), o.head_dim + 3};
  step_.k = {k_.data(), o.kv_heads * (o.head_dim + 1), o.head_dim + 1};
  step_.v = {v_.data(), o.kv_heads * o.value_dim, o.value_dim};
  step_.out = {out_.data(), query_heads * o.value_dim, o.value_dim};
  for (int twice = 0; twice < (o.sums ? 2 : 1); ++twice)
    for (std::size_t n = 0; n < sequence_.size(); ++n) {
      std::size_t max = 0;
      for (const HeadPages& head : sequence_[n].pages) {
        const MergedView* const merged = head.slots->merged;
        weights_.emplace_back(head.slots->slots + (merged == nullptr ? 0 : merged->entries()));
        weights_row_.push_back(weights_.back().size());
        max = std::max(max, weights_row_.back());
      }
      if (!o.drafts && o.weights_rows.empty()) continue;
      tokens_[n].weights_stride = static_cast<std::ptrdiff_t>(max);
      const std::size_t rows = o.drafts ? static_cast<std::size_t>(tokens_[n].count) : o.weights_rows.size();
      for (std::size_t head = weights_.size() - sequence_[n].pages.size(); head < weights_.size(); ++head)
        if (twice == 0) weights_[head].resize(max * rows);
    }
  for (std::vector<float>& w : weights_) weights_of_.push_back(w.data());
  if (o.weights) step_.weights = weights_of_.data();
  if (o.weights && o.sums) step_.sums = weights_of_.data() + weights_of_.size() / 2;
  rank_tiles_.resize(sequence_.size());
  rank_tiles_of_.assign(sequence_.size(), nullptr);
  for (std::size_t n = 0; o.rank_tiles && tokens_[0].rank_row != nullptr && n < sequence_.size(); ++n) {
    if (n % 3 == 2) continue;  // this head has none
    const SlotsView& slots = *sequence_[n].pages[0].slots;
    rank_tiles_[n].resize(rank_tile_floats(step_.shape, slots));
    make_rank_tiles(step_.shape, tokens_[n].rank_row, slots, rank_tiles_[n].data());
    rank_tiles_of_[n] = rank_tiles_[n].data();
  }
  if (o.rank_tiles) step_.rank_tiles = rank_tiles_of_.data();
  clear_results();
}

void RandomCache::clear_results() {
  std::fill(out_.begin(), out_.end(), kNan);
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const std::size_t row = weights_row_[i], heads = static_cast<std::size_t>(options_.kv_heads);
    const std::ptrdiff_t rows = i / heads < tokens_.size() ? tokens_[i / heads].weights_stride : 0;  // sums: one row
    const std::size_t stride = rows > 0 ? static_cast<std::size_t>(rows) : row;
    for (std::size_t at = 0; at < weights_[i].size(); ++at)  // 0: between the rows
      weights_[i][at] = options_.weights && at % stride < row ? kNan : 0.0f;
  }
}

void RandomCache::restore(const std::vector<std::byte>& bytes) {
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
}

}  // namespace palimpsest::testing
