#include "palimpsest/attention/reference.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <vector>

#include "palimpsest/attention/element.h"

namespace palimpsest {
namespace {

using Vector = std::vector<double>;

// x turned by a row of cosines and sines; cos_sin == nullptr: not turned.
Vector rotated(Vector x, const AttentionShape& shape, const float* cos_sin) {
  if (cos_sin == nullptr || shape.rope == RopeKind::kNone) return x;
  const int pairs = shape.rope_dims / 2;
  for (int i = 0; i < pairs; ++i) {
    const bool halves = shape.rope == RopeKind::kHalves;
    double& a = x[halves ? i : 2 * i];
    double& b = x[halves ? i + pairs : 2 * i + 1];
    const double c = cos_sin[i], s = cos_sin[pairs + i], turned = a * c - b * s;
    b = a * s + b * c;
    a = turned;
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
  const AttentionStep& step;
  const LayerView& cache;
  const StepTokens& tokens;
  int kv_head;
  std::int32_t window;

  Head(const AttentionStep& s, int sequence, int h)
      : step(s), cache(s.cache[sequence]), tokens(s.tokens[sequence]), kv_head(h), window(s.window(sequence, h)) {}

  const HeadPages& pages() const { return cache.head[kv_head]; }
  const SlotsView& slots() const { return *pages().slots; }
  std::byte* page(int slot) const { return pages().page[slot / cache.page_size]; }

  // Dimension d of the rotated half of a key: -partner in the first of a pair, partner in the second, 0 if none turns.
  float half(const float* k, int d) const {
    const int pairs = step.shape.rope_dims / 2;
    if (d >= 2 * pairs) return 0;
    if (step.shape.rope == RopeKind::kPairs) return d % 2 == 0 ? -k[d + 1] : k[d - 1];
    return d < pairs ? -k[d + pairs] : k[d - pairs];
  }

  void insert(int token) const {
    const AttentionShape& shape = step.shape;
    const int slot = slots().fresh[token], offset = slot % cache.page_size;
    const float* k = step.k.at(tokens.first + token, kv_head);
    const float* v = step.v.at(tokens.first + token, kv_head);
    const float* turn = shape.rotation == Rotation::kAtWrite ? query_row(shape, tokens, slots(), token) : nullptr;
    const Vector key = rotated(Vector(k, k + shape.head_dim), shape, turn);
    store_key(cache, page(slot), offset, std::vector<float>(key.begin(), key.end()).data());
    for (int d = 0; cache.rotated_half && d < shape.head_dim; ++d)
      store_element(page(slot) + half_offset(cache), cache.type, key_index(cache, offset, d), half(k, d));
    store_value(cache, page(slot), offset, v);
  }

  Vector key(int slot) const {
    const AttentionShape& shape = step.shape;
    Vector key(shape.head_dim);
    for (int d = 0; d < shape.head_dim; ++d) key[d] = load_key(cache, page(slot), slot % cache.page_size, d);
    if (shape.rotation == Rotation::kNever || shape.rotation == Rotation::kAtWrite) return key;
    const float* turn = row_of(tokens.rank_row, shape, slots().rank[slot]);
    if (cache.rotated_half) {
      for (int d = 0; d < shape.rope_dims; ++d) {
        const int pairs = shape.rope_dims / 2, p = shape.rope == RopeKind::kHalves ? d % pairs : d / 2;
        const std::size_t index = key_index(cache, slot % cache.page_size, d);
        key[d] = key[d] * turn[p] + load_element(page(slot) + half_offset(cache), cache.type, index) * turn[pairs + p];
      }
      return key;
    }
    key = rotated(std::move(key), shape, turn);
    if (shape.rotation == Rotation::kRecompute)  // the copy is of the cache's type
      for (double& x : key) {
        std::byte stored[4];
        store_element(stored, cache.type, 0, static_cast<float>(x));
        x = load_element(stored, cache.type, 0);
      }
    return key;
  }

  double value(int slot, int d) const { return load_value(cache, page(slot), slot % cache.page_size, d); }

  bool visible(int slot, int query) const {
    const std::int64_t when = slots().when[slot], now = tokens.when[query];
    return when != kDead && when <= now && within(when, now, step.local) &&
           (within(when, now, window) || when < tokens.sink_end);
  }

  // From a query to a slot, for ALiBi.
  double distance(int slot, int query) const {
    if (!tokens.rank_distance) return static_cast<double>(tokens.when[query]) - slots().when[slot];
    const bool far = tokens.two_query && slots().when[slot] < tokens.sink_end;
    const int rank = far ? sink_rank(tokens, slots(), window, query) : query_rank(tokens, slots(), query);
    return rank - slots().rank[slot];
  }

  // The weights of one query over all slots; all zero if it sees none.
  Vector weights(const std::vector<Vector>& keys, int query, int query_head) const {
    const AttentionShape& shape = step.shape;
    const float* q = step.q.at(tokens.first + query, query_head);
    const Vector raw(q, q + shape.head_dim);
    const Vector here = rotated(raw, shape, query_row(shape, tokens, slots(), query));
    Vector for_sinks = here;
    if (tokens.two_query && shape.rotation != Rotation::kNever)
      for_sinks = rotated(raw, shape, row_of(tokens.rank_row, shape, sink_rank(tokens, slots(), window, query)));

    Vector p(keys.size(), 0.0);
    double largest = -INFINITY, sum = 0;
    for (std::size_t s = 0; s < keys.size(); ++s) {
      if (!visible(static_cast<int>(s), query)) continue;
      p[s] = shape.scale * dot(keys[s], slots().when[s] < tokens.sink_end ? for_sinks : here);
      if (shape.soft_cap > 0) p[s] = shape.soft_cap * std::tanh(p[s] / shape.soft_cap);
      if (shape.alibi != nullptr) p[s] -= shape.alibi[query_head] * distance(static_cast<int>(s), query);
      largest = std::max(largest, p[s]);
    }
    for (std::size_t s = 0; s < keys.size(); ++s) {
      if (!visible(static_cast<int>(s), query)) continue;
      p[s] = std::exp(p[s] - largest);
      sum += p[s];
    }
    for (double& weight : p)
      if (sum > 0) weight /= sum;
    return p;
  }

  void attend(float* received) const {
    const AttentionShape& shape = step.shape;
    const int count = slots().slots;
    std::vector<Vector> keys(static_cast<std::size_t>(count));
    for (int s = 0; s < count; ++s)
      if (slots().when[s] != kDead) keys[s] = key(s);
    const bool mean = tokens.received_as == Received::kMean, peak = tokens.received_as == Received::kPeak;
    Vector total(keys.size(), 0.0), of_query(keys.size());

    for (int query = 0; query < tokens.count; ++query) {
      of_query.assign(keys.size(), 0.0);
      for (int g = 0; g < shape.group(); ++g) {
        const int query_head = kv_head * shape.group() + g;
        const Vector p = weights(keys, query, query_head);
        float* out = step.out.at(tokens.first + query, query_head);
        for (int d = 0; d < shape.value_dim; ++d) {
          double sum = 0;
          for (int s = 0; s < count; ++s)
            if (p[s] != 0) sum += p[s] * value(s, d);
          out[d] = static_cast<float>(sum);
        }
        for (int s = 0; s < count; ++s)
          of_query[s] = mean ? of_query[s] + p[s] / shape.group() : std::max(of_query[s], p[s]);
      }
      if (query < tokens.count - static_cast<std::int64_t>(tokens.weights_queries)) continue;
      for (int s = 0; s < count; ++s) total[s] = peak ? std::max(total[s], of_query[s]) : total[s] + of_query[s];
    }
    if (received != nullptr)
      for (int s = 0; s < count; ++s) received[s] = static_cast<float>(total[s]);
  }
};

}  // namespace

void insert_reference(const AttentionStep& step) {
  for (int i = 0; i < step.sequences; ++i)
    for (int h = 0; h < step.shape.kv_heads; ++h)
      for (int t = 0; t < step.tokens[i].count; ++t) Head(step, i, h).insert(t);
}

void attend_reference(const AttentionStep& step) {
  for (int i = 0; i < step.sequences; ++i)
    for (int h = 0; h < step.shape.kv_heads; ++h) {
      float* received = step.weights == nullptr ? nullptr : step.weights[i * step.shape.kv_heads + h];
      Head(step, i, h).attend(received);
      if (received != nullptr && step.received != nullptr) step.received(step.context, step.layer, i, h);
    }
}

void attention_reference(const AttentionStep& step) {
  insert_reference(step);
  attend_reference(step);
}

}  // namespace palimpsest
