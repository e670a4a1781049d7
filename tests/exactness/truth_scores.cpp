// Scores: the policy's score function and its inputs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/exactness/truth.h"

namespace palimpsest::testing {

void Truth::report_kv(int layer, const Layer& rows) {
  const LayerGeometry& shape = hyper_.geometry.layer(layer);
  for (int h = 0; h < shape.kv_heads; ++h) {
    Table& table = tables_[static_cast<std::size_t>(hyper_.geometry.head(layer, h))];
    const std::span<Token> inserted = std::span(table.kept).last(static_cast<std::size_t>(count_));
    std::vector<Position> position;
    for (const Token& token : inserted) position.push_back(token.position);
    std::vector<float> score(inserted.size(), 0);
    const HeadView view = {
        .position = position,
        .keys = {rows.k + h * shape.key_width, count_, shape.key_width, shape.kv_heads * shape.key_width},
        .values = {rows.v + h * shape.value_width, count_, shape.value_width, shape.kv_heads * shape.value_width},
        .inserted = count_,
        .table = hyper_.geometry.head(layer, h)};
    if (signals_.insert_score)
      policy_->score_inserted(view, score);
    else
      policy_->score(view, score);
    for (std::size_t i = 0; i < score.size(); ++i) {
      (signals_.insert_score ? inserted[i].inserted : inserted[i].score) = score[i];
      for (std::size_t d = 0; method_.scores_by_norms() && d < at(shape.key_width); ++d)
        inserted[i].square += double{view.keys[static_cast<int>(i)][d]} * view.keys[static_cast<int>(i)][d];
    }
  }
}

void Truth::ask(int layer, const Layer& rows) {
  const LayerGeometry& shape = hyper_.geometry.layer(layer);
  for (int h = 0; h < shape.query_heads; ++h) {
    auto& all = queries_[static_cast<std::size_t>(hyper_.geometry.head(layer, h / shape.group()))]
                        [static_cast<std::size_t>(h % shape.group())];
    for (int t = 0; t < count_; ++t) {
      const float* q = rows.q + (t * shape.query_heads + h) * shape.key_width;
      if (next_ - count_ + t >= 4) all.insert(all.end(), q, q + shape.key_width);
    }
  }
}

// Mean and covariance by definition, rotated by the mean of 512 rotation matrices.
ExpectedQueries Truth::expected(std::size_t index, std::vector<float>& memory) {
  const int layer = hyper_.geometry.layer_of(static_cast<int>(index));
  const LayerGeometry& shape = hyper_.geometry.layer(layer);
  const int group = shape.group(), rope = hyper_.rope_of(layer);
  const auto dim = static_cast<std::size_t>(shape.key_width);
  const RopeFrequencies& frequencies = frequencies_[static_cast<std::size_t>(rope)];
  std::vector<double> matrix(dim * dim, 0);  // [to][from]
  for (std::size_t d = 0; d < dim; ++d) {
    std::vector<double> unit(dim, 0), sum(dim, 0);
    for (int ahead = 0; ahead < 512; ++ahead) {
      std::ranges::fill(unit, 0.0);
      unit[d] = 1;
      if (frequencies.pairs() > 0) this->rotate(unit.data(), rope, next_ + ahead, 1);
      const bool rotates = d < 2 * static_cast<std::size_t>(frequencies.pairs());
      for (std::size_t e = 0; e < dim; ++e) sum[e] += unit[e] * (rotates ? frequencies.magnitude() : 1) / 512;
    }
    for (std::size_t e = 0; e < dim; ++e) matrix[e * dim + d] = sum[e];
  }
  std::vector<double> means, covariances;
  for (int g = 0; g < group; ++g) {
    const auto& all = queries_[index][static_cast<std::size_t>(g)];
    const std::size_t count = all.size() / dim;
    std::vector<double> mean(dim, 0), covariance(dim * dim, 0), half(dim * dim, 0);
    for (std::size_t i = 0; i < all.size(); ++i) mean[i % dim] += all[i] / static_cast<double>(count);
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t r = 0; r < dim; ++r)
        for (std::size_t c = 0; c < dim; ++c)
          covariance[r * dim + c] +=
              (all[i * dim + r] - mean[r]) * (all[i * dim + c] - mean[c]) / static_cast<double>(count);
    for (std::size_t r = 0; r < dim; ++r) {
      double sum = 0;
      for (std::size_t c = 0; c < dim; ++c) sum += matrix[r * dim + c] * mean[c];
      means.push_back(sum);
      for (std::size_t c = 0; c < dim; ++c)
        for (std::size_t k = 0; k < dim; ++k) half[r * dim + c] += matrix[r * dim + k] * covariance[k * dim + c];
    }
    for (std::size_t r = 0; r < dim; ++r)
      for (std::size_t c = 0; c < dim; ++c) {
        double sum = 0;
        for (std::size_t k = 0; k < dim; ++k) sum += half[r * dim + k] * matrix[c * dim + k];
        covariances.push_back(sum);
      }
  }
  memory.assign(means.begin(), means.end());
  memory.insert(memory.end(), covariances.begin(), covariances.end());
  return {.mean = {memory.data(), group, shape.key_width, shape.key_width},
          .covariance = {memory.data() + means.size(), group * shape.key_width, shape.key_width, shape.key_width},
          .scale = hyper_.attention_scale};
}

// In the cache's form: rotated at their positions if positions are original, else unrotated.
std::vector<float> Truth::keys_of(std::size_t index) {
  const int layer = hyper_.geometry.layer_of(static_cast<int>(index)),
            head = hyper_.geometry.kv_head_of(static_cast<int>(index));
  const LayerGeometry& shape = hyper_.geometry.layer(layer);
  const int rope = hyper_.rope_of(layer), pairs = frequencies_[static_cast<std::size_t>(rope)].pairs();
  std::vector<float> out;
  for (const Token& token : tables_[index].kept) {
    std::vector<double> k(static_cast<std::size_t>(shape.key_width));
    std::copy_n(key(layer, head, token.position), shape.key_width, k.data());
    if (method_.positions == Positions::kOriginal && pairs > 0) {
      rotate(k.data(), rope, token.position, 1);
      for (int d = 0; d < 2 * pairs; ++d) k[d] *= frequencies_[static_cast<std::size_t>(rope)].magnitude();
    }
    out.insert(out.end(), k.begin(), k.end());
  }
  return out;
}

std::vector<float> Truth::values_of(std::size_t index) {
  const int layer = hyper_.geometry.layer_of(static_cast<int>(index)),
            head = hyper_.geometry.kv_head_of(static_cast<int>(index));
  std::vector<float> out;
  for (const Token& token : tables_[index].kept) {
    const double* v = value(layer, head, token.position);
    out.insert(out.end(), v, v + hyper_.geometry.layer(layer).value_width);
  }
  return out;
}

// Weights of this step, or of the queries in the window.
std::vector<float> Truth::attention_of(std::size_t index) const {
  const int layer = hyper_.geometry.layer_of(static_cast<int>(index));
  const std::size_t first =
      signals_.whole_layer() ? static_cast<std::size_t>(hyper_.geometry.first_head(layer)) : index;
  const std::size_t tables =
      signals_.whole_layer() ? static_cast<std::size_t>(hyper_.geometry.layer(layer).kv_heads) : 1;
  std::vector<float> out;
  for (std::size_t i = 0; i < tables_[index].kept.size(); ++i) {
    double sum = 0;
    for (std::size_t t = first; t < first + tables; ++t) {
      const Token& token = tables_[t].kept.at(i);
      sum += token.received / static_cast<double>(tables);
      for (const auto& [query, weight] : token.history) sum += weight / static_cast<double>(tables);
    }
    out.push_back(static_cast<float>(sum));
  }
  return out;
}

// The policy's scores if the weights were `factor` times as large.
std::vector<float> Truth::scored(std::size_t index, double factor) {
  Table& table = tables_[index];
  std::vector<Position> position;
  std::vector<float> score;
  for (const Token& token : table.kept) {
    position.push_back(token.position);
    score.push_back(token.score);
  }
  std::vector<float> received = attention_of(index);
  for (float& weight : received) weight = static_cast<float>(weight * factor);
  std::vector<float> sums, inserted;
  for (const Token& token : table.kept) {
    sums.push_back(static_cast<float>(token.sum));
    inserted.push_back(token.inserted);
  }
  std::vector<float> keys, values, queries;
  if (signals_.keys) keys = keys_of(index);
  if (signals_.values) values = values_of(index);
  const auto rows = [&](const std::vector<float>& data, int width) {
    return Rows{data.data(), static_cast<int>(data.size()) / width, width, width};
  };
  policy_->score({.position = position,
                  .attention = received,
                  .attention_sum = sums,
                  .keys = rows(keys, hyper_.geometry.layer_geometry(static_cast<int>(index)).key_width),
                  .values = rows(values, hyper_.geometry.layer_geometry(static_cast<int>(index)).value_width),
                  .insert_score = inserted,
                  .inserted = count_,
                  .table = static_cast<int>(index),
                  .queries = signals_.query_moments ? expected(index, queries) : ExpectedQueries{}},
                 score);
  return score;
}

void Truth::score(std::size_t index) {
  std::vector<float> low, high;
  // The engine scores only what may still be evicted.
  const bool over = method_.schedule == Schedule::kPrompt && next_ > options_.prompt;
  const bool decides = counts() && !holds_window(index) && !over;
  if (decides) {
    low = scored(index, 1 - options_.same_score);
    high = scored(index, 1 + options_.same_score);
  }
  const std::vector<float> score = scored(index, 1);
  for (std::size_t i = 0; i < score.size(); ++i) tables_[index].kept[i].score = score[i];
  if (decides) follow(index, low, high);
}

// A weight within rounding of the threshold may be counted or not: the engine's score replaces ours if it is one of the
// two. `low` and `high`: the scores of slightly smaller and larger weights.
void Truth::follow(std::size_t index, std::span<const float> low, std::span<const float> high) {
  const int head = static_cast<int>(index);
  const SlotTable& slots = cache_->table(cache_->table_of(head));
  std::map<Position, float> theirs;
  for (std::size_t slot = 0; slot < slots.score().size(); ++slot)
    if (slots.position()[slot] != kNoPosition) theirs[slots.position()[slot]] = slots.score()[slot];
  if (method_.mechanism == Mechanism::kMerge)
    for (const MergedToken& token : cache_->merged(head)->tokens()) theirs[token.position] = token.score;
  for (std::size_t i = 0; i < low.size(); ++i) {
    if (low[i] == high[i]) continue;
    if (verdict_.first_close < 0) verdict_.first_close = next_;
    Token& token = tables_[index].kept[i];
    const float score = theirs.at(token.position);
    const auto is = [&](float possible) { return std::abs(score - possible) <= 1e-5F * possible; };
    if (is(low[i]) || is(high[i]))
      token.score = score;
    else
      wrong(fmt::format("slot table {} before token {}: token {} scores {}, neither {} nor {}", index, next_,
                        token.position, score, low[i], high[i]));
  }
}

}  // namespace palimpsest::testing
