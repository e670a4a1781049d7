#include "palimpsest/attention/reference.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <vector>

#include "palimpsest/cache/view.h"

namespace palimpsest {
namespace {

using Vector = std::vector<double>;

// x rotated by a row of cosines and sines; cos_sin == nullptr: not rotated.
Vector rotated(Vector x, const AttentionShape& shape, const float* cos_sin) {
  if (cos_sin == nullptr || shape.rope == RopeKind::kNone) return x;
  const int pairs = shape.rope_dims / 2;
  for (int i = 0; i < pairs; ++i) {
    const bool halves = shape.rope == RopeKind::kHalves;
    double& a = x[halves ? i : 2 * i];
    double& b = x[halves ? i + pairs : 2 * i + 1];
    const double c = cos_sin[i], s = cos_sin[pairs + i], rotated = a * c - b * s;
    b = a * s + b * c;
    a = rotated;
  }
  return x;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

const float* row_of(const float* rows, const AttentionShape& shape, std::int64_t index) {
  return rows == nullptr ? nullptr : rows + index * shape.rope_dims;
}

// One KV head of one sequence.
struct Head {
  const LayerStep& step;
  const LayerView& cache;
  const SequenceTokens& tokens;
  int kv_head;
  std::int32_t window;

  Head(const LayerStep& s, int sequence, int h)
      : step(s), cache(s.cache[sequence]), tokens(s.tokens[sequence]), kv_head(h), window(s.window(sequence, h)) {}

  const HeadPages& pages() const { return cache.head[kv_head]; }
  const SlotsView& slots() const { return *pages().slots; }
  std::byte* page(int slot) const { return pages().page[slot / cache.page_size]; }

  // Dimension d of a key's rotated half: -partner in the first dimension of a pair, partner in the second, 0 beyond the
  // rotated dimensions.
  float half(const float* k, int d) const {
    const int pairs = step.shape.rope_dims / 2;
    if (d >= 2 * pairs) return 0;
    if (step.shape.rope == RopeKind::kPairs) return d % 2 == 0 ? -k[d + 1] : k[d - 1];
    return d < pairs ? -k[d + pairs] : k[d - pairs];
  }

  void insert(int token) const {
    const AttentionShape& shape = step.shape;
    const int slot = slots().inserted[token], offset = slot % cache.page_size;
    const float* k = step.k.at(tokens.first + token, kv_head);
    const float* v = step.v.at(tokens.first + token, kv_head);
    const float* cos_sin = tokens.rotation == Rotation::kOnWrite ? query_row(shape, tokens, slots(), token) : nullptr;
    const Vector key = rotated(Vector(k, k + shape.head_dim), shape, cos_sin);
    store_key(cache, page(slot), offset, std::vector<float>(key.begin(), key.end()).data());
    if (cache.rotated_half) {
      std::vector<float> halves;
      for (int d = 0; d < shape.head_dim; ++d) halves.push_back(half(k, d));
      store_key(cache, page(slot) + half_offset(cache), offset, halves.data());
    }
    store_value(cache, page(slot), offset, v);
  }

  Vector key(int slot) const {
    const AttentionShape& shape = step.shape;
    std::vector<float> row(shape.head_dim);
    load_key(cache, page(slot), slot % cache.page_size, row.data());
    Vector key(row.begin(), row.end());
    if (tokens.rotation == Rotation::kNever || tokens.rotation == Rotation::kOnWrite) return key;
    const float* cos_sin = row_of(tokens.rank_row, shape, slots().rank[slot]);
    if (cache.rotated_half) {
      load_key(cache, page(slot) + half_offset(cache), slot % cache.page_size, row.data());
      for (int d = 0; d < shape.rope_dims; ++d) {
        const int pairs = shape.rope_dims / 2, p = shape.rope == RopeKind::kHalves ? d % pairs : d / 2;
        key[d] = key[d] * cos_sin[p] + row[d] * cos_sin[pairs + p];
      }
      return key;
    }
    key = rotated(std::move(key), shape, cos_sin);
    if (tokens.rotation == Rotation::kMaterialized)  // the copy is in the keys' format
      for (double& x : key) {
        std::byte stored[4];
        kv_format(cache.key_type).store(stored, 0, static_cast<float>(x));
        x = kv_format(cache.key_type).load(stored, 0);
      }
    return key;
  }

  void add_value(double weight, int slot, Vector& sum) const {
    if (weight == 0) return;
    std::vector<float> row(sum.size());
    load_value(cache, page(slot), slot % cache.page_size, row.data());
    for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += weight * row[d];
  }

  bool visible(int slot, int query) const {
    const std::int64_t relative = slots().relative[slot], now = tokens.relative[query];
    return relative != kEmptySlot && relative <= now && within(relative, now, step.local_of(tokens, query)) &&
           (within(relative, now, window) || relative < tokens.sink_end);
  }

  // Distance from a query to a slot, for ALiBi.
  double distance(int slot, int query) const {
    if (!tokens.rank_distance) return static_cast<double>(tokens.relative[query]) - slots().relative[slot];
    const bool of_sink = tokens.two_query && slots().relative[slot] < tokens.sink_end;
    const int rank = of_sink ? sink_rank(tokens, slots(), window, query) : query_rank(tokens, slots(), query);
    return rank - slots().rank[slot];
  }

  // Merged tokens (cache/view.h, MergedView), expanded: each has its own key.
  int entries() const { return slots().merged == nullptr ? 0 : slots().merged->entries(); }
  int slot_of(int entry) const {  // -1: no token there
    const MergedView& m = *slots().merged;
    const int row = entry / kTile, lane = entry % kTile;
    if (m.factor[entry] == 0) return -1;
    int tile = 0;
    while (m.first[tile + 1] <= row) ++tile;
    return tile * kTile + (m.lane[row] < 0 ? lane : m.lane[row]);
  }

  // Rotated by a distance in positions, backwards if negative.
  Vector rotated_by(const Vector& key, int distance) const {
    if (tokens.distance_row == nullptr) return key;
    const float* const row = row_of(tokens.distance_row, step.shape, std::abs(distance));
    std::vector<float> cos_sin(row, row + step.shape.rope_dims);
    for (int i = step.shape.rope_dims / 2; distance < 0 && i < step.shape.rope_dims; ++i) cos_sin[i] = -cos_sin[i];
    return rotated(key, step.shape, cos_sin.data());
  }

  // The weights of one query over all slots, then over entries of merged tokens; all zero if it sees none.
  Vector weights(const std::vector<Vector>& keys, int query, int query_head) const {
    const AttentionShape& shape = step.shape;
    const float* q = step.q.at(tokens.first + query, query_head);
    const Vector raw(q, q + shape.head_dim);
    const auto weighed = [&](Vector x) {
      for (std::size_t d = 0; shape.query_factor != nullptr && d < x.size(); ++d) x[d] *= shape.query_factor[d];
      return x;
    };
    const Vector for_others = weighed(rotated(raw, shape, query_row(shape, tokens, slots(), query)));
    Vector for_sinks = for_others;
    if (tokens.two_query && tokens.rotation != Rotation::kNever)
      for_sinks =
          weighed(rotated(raw, shape, row_of(tokens.rank_row, shape, sink_rank(tokens, slots(), window, query))));

    Vector p(keys.size() + static_cast<std::size_t>(entries()), -INFINITY);
    double largest = -INFINITY, sum = 0;
    const auto score = [&](std::size_t at, int s, double factor, int entries) {
      if (s < 0 || !visible(s, query)) return;
      const Vector& q = slots().relative[s] < tokens.sink_end ? for_sinks : for_others;
      p[at] = shape.scale * factor * dot(entries == 0 ? keys[s] : rotated_by(keys[s], entries), q);
      if (shape.soft_cap > 0) p[at] = shape.soft_cap * std::tanh(p[at] / shape.soft_cap);
      if (shape.alibi != nullptr) p[at] -= shape.alibi[query_head] * (distance(s, query) - entries);
      if (slots().bias != nullptr) p[at] += slots().bias[s];
      largest = std::max(largest, p[at]);
    };
    for (std::size_t s = 0; s < keys.size(); ++s) score(s, static_cast<int>(s), 1, 0);
    for (int entry = 0; entry < entries(); ++entry)
      score(keys.size() + static_cast<std::size_t>(entry), slot_of(entry), slots().merged->factor[entry],
            slots().merged->distance == nullptr ? 0 : slots().merged->distance[entry]);
    if (largest == -INFINITY) return Vector(p.size(), 0.0);  // no slot is visible
    if (shape.sink_logits != nullptr) {
      const double sink = shape.sink_logits[query_head];
      largest = std::max(largest, sink);
      sum = std::exp(sink - largest);
    }
    for (double& weight : p) {
      weight = std::exp(weight - largest);
      sum += weight;
    }
    for (double& weight : p) weight /= sum;
    return p;
  }

  void attend(float* received, float* sums) const {
    const AttentionShape& shape = step.shape;
    const int count = slots().slots;
    std::vector<Vector> keys(static_cast<std::size_t>(count));
    for (int s = 0; s < count; ++s)
      if (slots().relative[s] != kEmptySlot) keys[s] = key(s);
    const bool mean = tokens.weight_reduction == WeightReduction::kMeanOverGroup,
               max_over_all = tokens.weight_reduction == WeightReduction::kMaxOverAll;
    const std::size_t all = keys.size() + static_cast<std::size_t>(entries());
    Vector of_row(all, 0.0), total = of_row, of_query(all);
    int row = 0, end = tokens.count;  // the end of the row's queries
    if (tokens.drafts) end = 1;
    if (!tokens.weights_rows.empty()) end = tokens.count - tokens.weights_queries + tokens.weights_rows[0];
    const auto write = [](const Vector& from, float* to) {
      for (std::size_t i = 0; to != nullptr && i < from.size(); ++i) to[i] = static_cast<float>(from[i]);
    };

    for (int query = 0; query < tokens.count; ++query) {
      of_query.assign(all, 0.0);
      for (int g = 0; g < shape.group(); ++g) {
        const int query_head = kv_head * shape.group() + g;
        const Vector p = weights(keys, query, query_head);
        float* out = step.out.at(tokens.first + query, query_head);
        Vector sum(shape.value_dim, 0.0);
        for (int s = 0; s < count; ++s) add_value(p[s], s, sum);
        for (int entry = 0; entry < entries(); ++entry) add_value(p[count + entry], slot_of(entry), sum);
        for (int d = 0; d < shape.value_dim; ++d) out[d] = static_cast<float>(sum[d]);
        for (std::size_t i = 0; i < all; ++i)
          of_query[i] = mean ? of_query[i] + p[i] / shape.group() : std::max(of_query[i], p[i]);
      }
      for (std::size_t i = 0; i < all; ++i) total[i] += of_query[i];
      if (query < tokens.count - static_cast<std::int64_t>(tokens.weights_queries)) continue;
      for (std::size_t i = 0; i < all; ++i)
        of_row[i] = max_over_all ? std::max(of_row[i], of_query[i]) : of_row[i] + of_query[i];
      if (query + 1 < end) continue;
      write(of_row, received == nullptr ? nullptr : received + row * tokens.weights_stride);
      of_row.assign(all, 0.0);
      ++row;
      if (end < tokens.count) end += tokens.drafts ? 1 : tokens.weights_rows[static_cast<std::size_t>(row)];
    }
    if (tokens.count == 0) write(of_row, received);
    write(total, sums);
  }
};

}  // namespace

void insert_reference(const LayerStep& step) {
  for (int i = 0; i < step.sequences; ++i)
    for (int h = 0; h < step.shape.kv_heads; ++h)
      for (int t = 0; t < step.tokens[i].count; ++t) Head(step, i, h).insert(t);
}

void attend_reference(const LayerStep& step) {
  for (int i = 0; i < step.sequences; ++i)
    for (int h = 0; h < step.shape.kv_heads; ++h) {
      float* received = step.weights == nullptr ? nullptr : step.weights[i * step.shape.kv_heads + h];
      Head(step, i, h).attend(received, step.sums == nullptr ? nullptr : step.sums[i * step.shape.kv_heads + h]);
      if (received != nullptr && step.on_weights != nullptr) step.on_weights(step.context, step.layer, i, h);
    }
}

void attention_reference(const LayerStep& step) {
  insert_reference(step);
  attend_reference(step);
}

}  // namespace palimpsest
