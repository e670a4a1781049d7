// Mechanism match over lists of tokens: the oracle of engine/mechanism/match.cpp in whole runs. It does not fit: it
// checks what the engine's values and biases do to the outputs of the reference queries, by the definition of
// attention, and adopts them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/exactness/truth.h"
#include "tests/support/slot_rows.h"

namespace palimpsest::testing {

void Truth::keep_references(int layer, const Layer& rows) {
  const LayerGeometry& shape = hyper_.geometry.layer(layer);
  for (int h = 0; h < shape.query_heads; ++h) {
    auto& all = references_[static_cast<std::size_t>(hyper_.geometry.head(layer, h / shape.group()))]
                           [static_cast<std::size_t>(h % shape.group())];
    for (int t = 0; t < count_; ++t) {
      const float* q = rows.q + (t * shape.query_heads + h) * shape.key_width;
      all.insert(all.end(), q, q + shape.key_width);
    }
  }
}

// Of the last queries of a head's group, with these tokens.
Truth::Outputs Truth::outputs(int index, const std::vector<Token>& tokens) {
  const int layer = hyper_.geometry.layer_of(index), head = hyper_.geometry.kv_head_of(index);
  const LayerGeometry& shape = hyper_.geometry.layer(layer);
  const int rope = hyper_.rope_of(layer);
  const double magnitude = frequencies_[static_cast<std::size_t>(rope)].pairs() == 0
                               ? 1
                               : frequencies_[static_cast<std::size_t>(rope)].magnitude();
  const int rotary = 2 * frequencies_[static_cast<std::size_t>(rope)].pairs();
  Outputs out;
  for (int g = 0; g < shape.group(); ++g)
    for (Position now = std::max<Position>(0, next_ - method_.references); now < next_; ++now) {
      const auto query = static_cast<std::size_t>(head * shape.group() + g);
      const double* const q =
          references_[static_cast<std::size_t>(index)][static_cast<std::size_t>(g)].data() + now * shape.key_width;
      double sum =
          hyper_.sink_logits.empty() ? 0 : std::exp(double{hyper_.sink_logits[static_cast<std::size_t>(layer)][query]});
      std::vector<double> row(static_cast<std::size_t>(shape.value_width), 0);
      for (const Token& token : tokens) {
        const Position p = token.position, distance = now - p;
        if (distance < 0 || distance >= shape.window || (shape.chunked && p < now / shape.window * shape.window))
          continue;
        std::vector<double> k(key(layer, head, p), key(layer, head, p) + shape.key_width),
            rotated(q, q + shape.key_width);
        const bool by_position = !hyper_.query_factors.empty();
        rotate(k.data(), rope, by_position ? p : distance, by_position ? 1 : -1);
        if (by_position) rotate(rotated.data(), rope, now, 1);
        double score = 0;
        for (int d = 0; d < shape.key_width; ++d)
          score +=
              rotated[static_cast<std::size_t>(d)] * k[static_cast<std::size_t>(d)] *
              (d < rotary ? magnitude * magnitude : 1) *
              (by_position ? double{hyper_.query_factors[static_cast<std::size_t>(layer)][static_cast<std::size_t>(d)]}
                           : 1);
        score *= double{hyper_.attention_scale};
        if (const double cap = hyper_.attention_soft_cap; cap > 0) score = cap * std::tanh(score / cap);
        if (!hyper_.alibi.empty()) score -= double{hyper_.alibi[query]} * static_cast<double>(distance);
        const double weight = std::exp(score + token.bias);
        sum += weight;
        for (int d = 0; d < shape.value_width; ++d)
          row[static_cast<std::size_t>(d)] += weight * value(layer, head, p)[d];
      }
      for (const double x : row) {
        out.rows.push_back(sum > 0 ? x / sum : 0);
        out.square += out.rows.back() * out.rows.back();
      }
    }
  return out;
}

void Truth::match(const Cache& cache, int index, Table& table, const std::vector<Token>& leaving) {
  const int layer = hyper_.geometry.layer_of(index), head = hyper_.geometry.kv_head_of(index);
  const SlotTable& slots = cache.table(index);
  const LayerView view = cache.view(layer);
  const auto is_new = [&](const Token& token) { return token.position >= next_; };
  std::vector<Token> kept = table.kept, all;
  std::erase_if(kept, is_new);
  all = kept;
  all.insert(all.end(), leaving.begin(), leaving.end());
  const Outputs before = outputs(index, all), dropped = outputs(index, kept);

  std::map<Position, int> slot_of;
  for (int slot = 0; slot < slots.slots(); ++slot) slot_of[slots.position(slot)] = slot;
  const auto bias = slots.column(slots.columns() - 1);
  for (Token& token : table.kept) {
    const auto found = slot_of.find(token.position);
    if (found == slot_of.end() || is_new(token)) continue;  // compare() has reported it; not fitted
    const int slot = found->second;
    token.bias = bias[static_cast<std::size_t>(slot)];
    const std::vector<float> row = value_in(view, cache.head(index).page[slot / view.page_size], slot % view.page_size);
    std::ranges::copy(row, value(layer, head, token.position));
  }
  kept = table.kept;
  std::erase_if(kept, is_new);
  const Outputs fitted = outputs(index, kept);
  const auto error = [&](const Outputs& of) {
    double sum = 0;
    for (std::size_t i = 0; i < of.rows.size(); ++i)
      sum += (of.rows[i] - before.rows[i]) * (of.rows[i] - before.rows[i]);
    return sum;
  };
  const double of_type = options_.type.value == CacheType::kF32 ? 1e-8 : 1e-2;  // values are rounded
  if (error(fitted) > error(dropped) + of_type * before.square)
    wrong(fmt::format("slot table {} before token {}: fitting {} tokens to {} gives an error of {}, dropping alone {}",
                      index, next_, kept.size(), all.size(), error(fitted), error(dropped)));
  if (options_.type.value == CacheType::kF32 && error(dropped) > 1e-3 * before.square &&
      error(fitted) > 0.999 * error(dropped))
    wrong(fmt::format("slot table {} before token {}: nothing was fitted: {} of {} tokens, dropped {} fitted {} of {}",
                      index, next_, kept.size(), all.size(), error(dropped), error(fitted), before.square));
}

}  // namespace palimpsest::testing
