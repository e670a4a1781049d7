#include "palimpsest/engine/mechanism/merge.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "palimpsest/attention/read_rows.h"
#include "palimpsest/cache/view.h"
#include "palimpsest/core/growth.h"
#include "palimpsest/core/score_order.h"
#include "palimpsest/core/vectors.h"

namespace palimpsest {
namespace {

// Keys and values of one head: keys un-rotated, on first use. Reuses its memory for the next head.
class Tokens {
 public:
  // `first`: the first slot that value_similarities() will compare with the representatives. `only`: it compares no
  // other; else the representatives' values are kept.
  void read(const LayerView& view, const HeadPages& head, const PositionView& position, const RopeFrequencies* rope,
            std::span<const char> representative, int first, bool only) {
    view_ = view;
    head_ = head;
    position_ = position;
    rope_ = rope;
    first_ = first;
    const auto slots = position.size();
    representatives_.clear();
    for (int slot = 0; !only && slot < static_cast<int>(slots); ++slot)
      if (representative[at(slot)] != 0) representatives_.push_back(slot);
    tile_.resize(at(kTile * view.value_dim));
    values_.clear();
    values_.reserve(representatives_.size() * at(view.value_dim));
    value_norm_.resize(slots);
    products_.resize(slots);
    value_.resize(at(view.value_dim));
    load(first, value_);
    for (int slot = 0; slot < static_cast<int>(slots); slot += kTile) {  // while a tile is in the L1 cache
      read_value_tile(view, head, slot, tile_.data());
      const Rows rows{tile_.data(), kTile, view.value_dim, view.value_dim};
      for (int i = 0; !only && i < kTile; ++i)
        if (representative[at(slot + i)] != 0) values_.insert(values_.end(), rows[i].begin(), rows[i].end());
      norm_rows(rows, std::span(value_norm_).subspan(at(slot), kTile));
      dot_rows(rows, value_, std::span(products_).subspan(at(slot), kTile));
    }
    key_norm_.assign(slots, kUnknown);
    keys_.resize(slots * at(view.head_dim));
  }

  // Adds `factor` times a slot's value.
  void add_value(float factor, int slot, std::span<float> sum) {
    load(slot, value_);
    add_scaled(factor, value_, sum);
  }
  std::span<float> key(int slot) {
    const auto row = std::span(keys_).subspan(at(slot * view_.head_dim), at(view_.head_dim));
    if (key_norm_[at(slot)] == kUnknown) {
      const std::byte* const page = head_.page[slot / view_.page_size];
      load_key(view_, page, slot % view_.page_size, row.data());
      rotate(row, slot, -1);
      key_norm_[at(slot)] = norm(row);
    }
    return row;
  }
  std::size_t value_width() const { return value_.size(); }
  float key_norm(int slot) { return key(slot), key_norm_[at(slot)]; }
  // The cosine of the victim's value with each representative's; kNoCosine for other slots. Only the representatives
  // are multiplied: after a prompt they are few, and victims many.
  static constexpr float kNoCosine = -2;
  void value_similarities(int victim, std::span<const char> representative, std::vector<float>& similarity) {
    similarity.resize(value_norm_.size());
    if (victim == first_) {
      std::ranges::copy(products_, similarity.begin());
    } else {
      load(victim, value_);
      product_.resize(representatives_.size());
      dot_rows({values_.data(), static_cast<int>(product_.size()), view_.value_dim, view_.value_dim}, value_, product_);
      for (std::size_t i = 0; i < product_.size(); ++i) similarity[at(representatives_[i])] = product_[i];
    }
    const float length = value_norm_[at(victim)];
    for (std::size_t i = 0; i < similarity.size(); ++i) {
      const float s = cosine(similarity[i], length, value_norm_[i]);
      similarity[i] = representative[i] != 0 ? s : kNoCosine;
    }
  }
  float key_cosine(int a, int b) { return cosine(dot(key(a), key(b)), key_norm(a), key_norm(b)); }

  void store(int slot, std::vector<float>& key, std::span<const float> value) {
    rotate(key, slot, 1);
    std::byte* const page = head_.page[slot / view_.page_size];
    store_key(view_, page, slot % view_.page_size, key.data());
    store_value(view_, page, slot % view_.page_size, value.data());
  }

 private:
  void load(int slot, std::span<float> value) const {
    load_value(view_, head_.page[slot / view_.page_size], slot % view_.page_size, value.data());
  }
  // 0 for a zero row: its products are 0. No branch: loops over it become vectors.
  static float cosine(float product, float a, float b) { return product / std::max(a * b, kMinProduct); }

  // Rotates to the slot's position, with the model's magnitude (sign 1), or back (sign -1).
  void rotate(std::span<float> key, int slot, int sign) {
    if (rope_ == nullptr) return;
    const auto pairs = at(rope_->pairs());
    row_.resize(2 * pairs);
    rope_->row(position_[at(slot)], row_.data());
    const auto magnitude = static_cast<float>(rope_->magnitude());
    const bool halves = rope_->kind() == RopeKind::kHalves;
    for (std::size_t p = 0; p < pairs; ++p) {
      float &a = key[halves ? p : 2 * p], &b = key[halves ? p + pairs : 2 * p + 1];
      const float scale = sign > 0 ? 1 : 1 / (magnitude * magnitude);
      const float c = row_[p] * scale, s = static_cast<float>(sign) * row_[pairs + p] * scale, x = a * c - b * s;
      b = a * s + b * c;
      a = x;
    }
  }

  static constexpr float kUnknown = -1, kMinProduct = std::numeric_limits<float>::min();
  LayerView view_;
  HeadPages head_;
  PositionView position_;
  const RopeFrequencies* rope_ = nullptr;
  std::vector<int> representatives_;  // slots
  std::vector<float> values_;         // theirs
  std::vector<float> tile_, keys_, value_norm_, products_, product_, key_norm_, row_, value_;
  int first_ = 0;
};

constexpr float kMinNorm = 1e-18F;  // stands for the norm of a zero key

struct Merging {
  int victim, target;  // slots; target: or MergedToken::kZeroClass
  std::size_t order;   // rank of the victim: highest score first, of equal scores the oldest
};

// The cluster of a slot before this eviction: its token, and those merged into it.
struct Cluster {
  double weight = 0;  // sum of scores
  int size = 1;
  Position first = 0, last = 0;  // positions
};

struct Head {
  SlotTable& table;
  MergedTokens& merged;
  Tokens& tokens;
  std::vector<Cluster>& clusters;               // [slots]
  std::vector<MergedTokens::Joining>& joining;  // [slots]
  std::span<float> own_norms;  // [slots] Method::keeps_norms: of a representative, 0: its key's; or empty

  void begin() {
    clusters.resize(at(table.slots()));
    joining.assign(at(table.slots()), {});
    for (int slot = 0; slot < table.slots(); ++slot)
      clusters[at(slot)] = {
          .weight = table.score()[at(slot)], .first = table.position(slot), .last = table.position(slot)};
    for (const MergedToken& token : merged.tokens()) {
      if (!token.in_cluster()) continue;
      Cluster& cluster = clusters[at(token.slot)];
      cluster.weight += token.score;
      ++cluster.size;
      cluster.first = std::min(cluster.first, token.position);
      cluster.last = std::max(cluster.last, token.position);
    }
  }
  // The most similar representative; of equal ones the first slot; kZeroClass: none reaches tau. Un-rotating a key
  // costs far more than comparing values: so the representative with the most similar value is compared first, and the
  // others only if their similarity could exceed the max.
  int best_representative(int victim, std::span<const char> representative, const Method& m) const {
    thread_local std::vector<float> similarity;
    tokens.value_similarities(victim, representative, similarity);
    int best = MergedToken::kZeroClass;
    float max = m.tau;
    const auto bound = [&](float of_values) {
      if (of_values == Tokens::kNoCosine) return of_values;
      if (m.similarity == Similarity::kKey) return 1.0F;
      return m.similarity == Similarity::kProduct ? std::abs(of_values) : std::max(0.0F, of_values);
    };
    const auto similar = [&](int slot) {
      const float s = similarity[at(slot)];
      if (m.similarity == Similarity::kKey) return tokens.key_cosine(victim, slot);
      if (m.similarity == Similarity::kValue) return s;
      if (m.similarity == Similarity::kProduct) return s * tokens.key_cosine(victim, slot);
      return s <= 0 ? 0 : s * std::max(0.0F, tokens.key_cosine(victim, slot));
    };
    const auto compare = [&](int slot) {
      if (m.merge_position == MergePosition::kOwn && !near(victim, slot)) return;
      const float r = similar(slot);
      if (r > max || (r == max && (best < 0 || slot < best))) max = r, best = slot;
    };
    const auto promising = static_cast<int>(std::ranges::max_element(similarity, {}, bound) - similarity.begin());
    if (bound(similarity[at(promising)]) >= max) compare(promising);
    for (int slot = 0; slot < std::ssize(similarity); ++slot)
      if (bound(similarity[at(slot)]) >= max && slot != promising) compare(slot);
    return best;
  }
  // The norm of a representative's own key: of the mean of a cluster it is not the norm.
  float own_norm(int slot) const {
    const float known = own_norms.empty() ? 0 : own_norms[at(slot)];
    return known > 0 ? known : std::max(tokens.key_norm(slot), kMinNorm);
  }
  // Whether all tokens of the victim's cluster are near enough to the representative to keep their own positions.
  bool near(int victim, int representative) const {
    const Position position = table.position(representative);
    const Cluster& cluster = clusters[at(victim)];
    return position - cluster.first <= MergedTokens::kMaxDistance &&
           cluster.last - position <= MergedTokens::kMaxDistance;
  }
  // Merges all victims of one target at once, with the weights from before the merge.
  void merge(std::span<const Merging> mergings) {
    const int target = mergings.front().target;
    thread_local std::vector<std::pair<int, double>> parts;
    thread_local std::vector<float> key, value;
    parts.assign(1, {target, clusters[at(target)].weight});
    for (const Merging& m : mergings) parts.emplace_back(m.victim, clusters[at(m.victim)].weight);
    double sum = 0;
    for (const auto& [slot, weight] : parts) sum += weight;
    if (sum <= 0)
      for (auto& [slot, weight] : parts) sum += weight = clusters[at(slot)].size;
    key.assign(tokens.key(target).size(), 0);
    value.assign(tokens.value_width(), 0);
    for (const auto& [slot, weight] : parts) {
      const auto share = static_cast<float>(weight / sum);
      add_scaled(share / own_norm(slot), tokens.key(slot), key);
      tokens.add_value(share, slot, value);
    }
    const float length = own_norm(target), scale = own_norms.empty() ? length / std::max(norm(key), kMinNorm) : length;
    for (float& x : key) x *= scale;
    tokens.store(target, key, value);
    for (const Merging& m : mergings) joining[at(m.victim)] = {target, own_norm(m.victim) / length};
    if (!own_norms.empty()) own_norms[at(target)] = length;
  }
  // The victims and their merged tokens become merged tokens of their targets.
  void join(std::span<const Merging> mergings) {
    thread_local std::vector<float> statistics;
    for (const Merging& m : mergings)
      if (m.target == MergedToken::kZeroClass) joining[at(m.victim)].slot = m.target;
    merged.merge(joining);
    for (const Merging& m : mergings) {
      statistics.clear();
      for (int c = 0; c < table.columns(); ++c) statistics.push_back(table.column(c)[at(m.victim)]);
      merged.add({.position = table.position(m.victim),
                  .slot = m.target,
                  .factor = joining[at(m.victim)].factor,
                  .score = table.score()[at(m.victim)]},
                 statistics);
    }
  }
};

// Max merged tokens of a table: no more than were read, whatever gamma is.
std::size_t max_merged(const SlotTable& table, const Method& m, int budget) {
  return std::min(static_cast<std::size_t>(m.gamma - 1) * at(budget),
                  capacity_for(static_cast<std::size_t>(table.next())));
}

// Reserves memory for this eviction and later ones.
void reserve(Cache& cache, int t, std::size_t victims, const Method& m, int budget) {
  const std::size_t max = max_merged(cache.table(t), m, budget);
  MergedTokens& merged = *cache.merged(t);
  // reserve() has capacity for one more, which keep_best() does not free: else every step would grow and shrink it.
  merged.reserve(std::max(max, std::max<std::size_t>(1, merged.tokens().size() + std::min(victims, max)) - 1), max,
                 m.merge_position == MergePosition::kOwn, cache.table(t).slots());
}

void merge_table(Cache& cache, int t, std::span<const int> victims, const Method& m, int budget,
                 std::span<const RopeFrequencies> frequencies, const Interrupt* interrupt) {
  const int layer = cache.geometry().layer_of(t);  // a table is a head
  SlotTable& table = cache.table(t);
  MergedTokens& merged = *cache.merged(t);
  const std::size_t max = max_merged(table, m, budget);

  thread_local std::vector<char> representative;  // of each slot: whether victims can be merged into it
  thread_local std::vector<std::size_t> order;    // victims to be merged, highest score first
  thread_local std::vector<bool> evicted;
  thread_local std::vector<Merging> mergings;
  order.resize(m.tau >= 1 ? 0 : victims.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {  // not stable_sort: it allocates
    const float x = table.score()[at(victims[a])], y = table.score()[at(victims[b])];
    return score_above(x, y) || (!score_above(y, x) && a < b);
  });
  if (order.size() > max) order.resize(max);

  evicted.assign(at(table.slots()), false);
  for (const int slot : victims) evicted[at(slot)] = true;
  representative.resize(evicted.size());
  const PositionView position = table.position();
  const Position recent = table.next() - m.recent(budget);
  for (std::size_t slot = 0; slot < representative.size(); ++slot)
    representative[slot] = position[slot] != kNoPosition && position[slot] < recent;
  for (const int slot : victims) representative[at(slot)] = 0;

  mergings.clear();
  if (!order.empty()) {
    const LayerView view = cache.view(layer);
    thread_local Tokens tokens;
    tokens.read(view, cache.head(t), position, frequencies.empty() ? nullptr : &frequencies[at(layer)], representative,
                victims[order.front()], order.size() == 1);
    thread_local std::vector<Cluster> clusters;
    thread_local std::vector<MergedTokens::Joining> joining;
    Head head{table, merged, tokens, clusters, joining, {}};
    if (m.keeps_norms()) head.own_norms = table.column(table.columns() - 1);
    head.begin();
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (interrupt != nullptr) interrupt->check();
      const int victim = victims[order[i]], target = head.best_representative(victim, representative, m);
      if (target != MergedToken::kZeroClass || m.zero_class) mergings.push_back({victim, target, i});
    }
    std::ranges::sort(mergings, {}, [](const Merging& m) { return std::pair(m.target, m.order); });
    for (std::size_t first = 0, end = 0; first < mergings.size(); first = end) {
      while (end < mergings.size() && mergings[end].target == mergings[first].target) ++end;
      if (mergings[first].target != MergedToken::kZeroClass)
        head.merge(std::span(mergings).subspan(first, end - first));
    }
    head.join(mergings);
  }
  for (const Merging& m : mergings) evicted[at(m.victim)] = false;
  merged.remove(evicted);
  merged.keep_best(max);
  merged.build_layout(table);
}

// Uniform in [0, 1), a hash of the token's position and its head (splitmix64).
double draw(Position position, int table) {
  auto x = static_cast<std::uint64_t>(position) * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(table) + 1;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
  x = (x ^ x >> 27) * 0x94D049BB133111EBU;
  return static_cast<double>((x ^ x >> 31) >> 11) * 0x1p-53;
}

// CaM (ICML 2024): with probability (victim's attention) / (mean attention of the next 32 tokens), adds 1/32 of the
// victim's value to each of their values. Attention: the sum over all queries so far, the last column.
void add_to_next(Cache& cache, int t, std::span<const int> victims, const Interrupt* interrupt) {
  constexpr std::size_t kNext = 32;
  const SlotTable& table = cache.table(t);
  const LayerView view = cache.view(cache.geometry().layer_of(t));
  const HeadPages& head = cache.head(t);
  const auto attention = table.column(table.columns() - 1);
  const auto position = table.position();
  thread_local std::vector<bool> evicted;
  thread_local std::vector<int> kept;  // younger than the victim
  thread_local std::vector<float> row, of_victim;
  evicted.assign(at(table.slots()), false);
  for (const int slot : victims) evicted[at(slot)] = true;
  row.resize(at(view.value_dim));
  of_victim.resize(row.size());
  for (const int victim : victims) {
    if (interrupt != nullptr) interrupt->check();
    kept.clear();
    for (int slot = 0; slot < table.slots(); ++slot)
      if (const Position p = position[at(slot)]; p != kNoPosition && p > position[at(victim)] && !evicted[at(slot)])
        kept.push_back(slot);
    const auto of_slot = [&](int slot) { return position[at(slot)]; };
    if (kept.size() > kNext) std::ranges::nth_element(kept, kept.begin() + kNext, {}, of_slot);
    const auto next = std::span(kept).first(std::min(kNext, kept.size()));
    std::ranges::sort(next, {}, of_slot);  // the order of the sum below
    double mean = 0;
    for (const int slot : next) mean += attention[at(slot)] / static_cast<double>(next.size());
    if (draw(position[at(victim)], t) * mean >= attention[at(victim)]) continue;
    const auto page = [&](int slot) { return head.page[slot / view.page_size]; };
    load_value(view, page(victim), victim % view.page_size, of_victim.data());
    for (const int slot : next) {
      load_value(view, page(slot), slot % view.page_size, row.data());
      add_scaled(1 / static_cast<float>(kNext), of_victim, row);
      store_value(view, page(slot), slot % view.page_size, row.data());
    }
  }
}

}  // namespace

void drop_merged(Cache& cache, const Victims& plan) {
  std::vector<bool> slots;
  for (int t = 0; t < cache.tables(); ++t) {
    MergedTokens& merged = *cache.merged(t);
    if (plan.drop[at(t)].empty() || merged.tokens().empty()) continue;
    slots.assign(at(cache.table(t).slots()), false);
    for (const int slot : plan.drop[at(t)]) slots[at(slot)] = true;
    merged.remove(slots);
    merged.build_layout(cache.table(t));
  }
}

void merge_victims(Cache& cache, const Victims& plan, const Method& method, const Evictor& evictor,
                   std::span<const RopeFrequencies> frequencies, Workers* workers, const Interrupt* interrupt) {
  cache.make_exclusive();
  if (method.join == Join::kClass)
    for (int t = 0; t < cache.tables(); ++t)
      if (!plan.drop[at(t)].empty()) reserve(cache, t, plan.drop[at(t)].size(), method, evictor.budget(t));
  const auto merge = [&](int t) {
    const auto& victims = plan.drop[at(t)];
    if (victims.empty()) return;
    if (method.join == Join::kNext)
      add_to_next(cache, t, victims, interrupt);
    else
      merge_table(cache, t, victims, method, evictor.budget(t), frequencies, interrupt);
  };
  if (workers != nullptr)
    workers->run(cache.tables(), merge);
  else
    for (int t = 0; t < cache.tables(); ++t) merge(t);
}

}  // namespace palimpsest
