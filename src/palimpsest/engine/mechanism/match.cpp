#include "palimpsest/engine/mechanism/match.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "palimpsest/attention/read_rows.h"
#include "palimpsest/core/vectors.h"
#include "palimpsest/engine/mechanism/query_statistics.h"

namespace palimpsest {
namespace {

constexpr float kMaxBias = 20;  // of the sum of many fits

// One head's tokens, those that stay first.
struct MatchedTokens {
  std::vector<int> slots;
  std::vector<Position> position;
  std::vector<float> keys, values, all;
  int kept = 0;
  Rows key_rows, value_rows;

  void read(const Cache& cache, int t, std::span<const int> victims) {
    const SlotTable& table = cache.table(t);
    const LayerView view = cache.view(cache.geometry().layer_of(t));
    const PositionView positions = table.position();
    slots.clear();
    position.clear();
    for (int slot = 0; slot < table.slots(); ++slot)
      if (positions[at(slot)] != kNoPosition) slots.push_back(slot);
    thread_local std::vector<char> evicted;
    evicted.assign(at(table.slots()), 0);
    for (const int slot : victims) evicted[at(slot)] = 1;
    std::ranges::stable_partition(slots, [&](int slot) { return evicted[at(slot)] == 0; });
    kept = static_cast<int>(slots.size() - victims.size());
    for (const int slot : slots) position.push_back(positions[at(slot)]);
    all.resize(at(table.slots()) * at(std::max(view.head_dim, view.value_dim)));
    const auto pick = [&](int width, std::vector<float>& to) {
      to.resize(slots.size() * at(width));
      for (std::size_t i = 0; i < slots.size(); ++i)
        std::copy_n(all.begin() + slots[i] * std::ptrdiff_t{width}, width,
                    to.begin() + static_cast<std::ptrdiff_t>(i) * width);
      return Rows{to.data(), static_cast<int>(slots.size()), width, width};
    };
    read_keys(view, cache.head(t), all.data());
    key_rows = pick(view.head_dim, keys);
    read_values(view, cache.head(t), all.data());
    value_rows = pick(view.value_dim, values);
  }
};

// The tokens that a query at `now` sees begin there.
Position first_seen(const LayerGeometry& layer, Position now) {
  if (layer.window == INT32_MAX) return 0;
  return layer.chunked ? now - now % layer.window : now - layer.window + 1;
}

void match_table(Cache& cache, int t, std::span<const int> victims, const ReferenceQueries& references,
                 const ScoreRule& rule, std::span<const RopeFrequencies> frequencies, const FitOptions& options) {
  thread_local MatchedTokens tokens;
  thread_local AttentionFit fit;
  thread_local std::vector<float> query, cos_sin, scores;
  const int layer = cache.geometry().layer_of(t);  // a table is a head
  const LayerGeometry& g = cache.geometry().layer(layer);
  const std::span<float> bias = cache.biases(t);
  tokens.read(cache, t, victims);
  if (tokens.kept == 0) return;
  fit.begin(tokens.value_rows, tokens.kept);
  const auto rings = reference_queries(cache, t, references);
  const Position next = cache.table(t).next();
  for (int member = 0; member < g.group(); ++member) {
    const auto ring = rings.subspan(at(member) * references.floats(g.key_width), references.floats(g.key_width));
    const int head = cache.geometry().kv_head_of(t) * g.group() + member;
    const float slope = rule.alibi.empty() ? 0 : rule.alibi[at(head)];
    const float sink = rule.sink_logits.empty() || rule.sink_logits[at(layer)].empty()
                           ? -std::numeric_limits<float>::infinity()
                           : rule.sink_logits[at(layer)][at(head)];
    for (Position now = std::max<Position>(0, next - references.queries); now < next; ++now) {
      const auto stored = reference_at(ring, g.key_width, now);
      if (stored.empty()) continue;
      query.assign(stored.begin(), stored.end());
      if (!frequencies.empty()) {
        cos_sin.resize(2 * at(frequencies[at(layer)].pairs()));
        if (!cos_sin.empty()) frequencies[at(layer)].row(now, cos_sin.data());
        rotate_row(query.data(), 1, frequencies[at(layer)].kind(), cos_sin);
      }
      if (!rule.query_factors.empty() && !rule.query_factors[at(layer)].empty())
        for (std::size_t d = 0; d < query.size(); ++d) query[d] *= rule.query_factors[at(layer)][d];
      scores.resize(tokens.slots.size());
      dot_rows(tokens.key_rows, query, scores);
      const Position first = first_seen(g, now);
      for (std::size_t i = 0; i < scores.size(); ++i) {
        const Position position = tokens.position[i];
        float& score = scores[i];
        score *= rule.scale;
        if (rule.soft_cap > 0) score = rule.soft_cap * std::tanh(score / rule.soft_cap);
        score += bias[at(tokens.slots[i])] - slope * static_cast<float>(now - position);
        if (position < first || position > now) score = -std::numeric_limits<float>::infinity();
      }
      fit.add(scores, sink);
    }
  }
  if (!fit.solve(options)) return;
  const LayerView view = cache.view(layer);
  const HeadPages& head = cache.head(t);
  for (int i = 0; i < tokens.kept; ++i) {
    const int slot = tokens.slots[at(i)];
    float& of_slot = bias[at(slot)];
    of_slot = std::clamp(of_slot + std::log(fit.factors()[at(i)]), -kMaxBias, kMaxBias);
    store_value(view, head.page[slot / view.page_size], slot % view.page_size, fit.values()[i].data());
  }
}

}  // namespace

void match_kept(Cache& cache, const Victims& plan, const ReferenceQueries& references, const ScoreRule& rule,
                std::span<const RopeFrequencies> frequencies, Workers* workers, const Interrupt* interrupt,
                const FitOptions& options) {
  cache.make_exclusive();
  const auto match = [&](int t) {
    if (plan.drop[at(t)].empty()) return;
    if (interrupt != nullptr) interrupt->check();
    match_table(cache, t, plan.drop[at(t)], references, rule, frequencies, options);
  };
  if (workers != nullptr)
    workers->run(cache.tables(), match);
  else
    for (int t = 0; t < cache.tables(); ++t) match(t);
}

}  // namespace palimpsest
