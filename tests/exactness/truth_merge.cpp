// Merging (EMS, arXiv 2412.08521, section 4.2) over lists of tokens: the oracle of engine/mechanism/merge.cpp in whole
// runs. A cluster's key and value are its representative's rows in keys_ and values_; a merged token has a factor and
// its statistics.
//
// The oracle decides into which cluster a victim is merged. If two clusters are equally similar within rounding, it
// follows the cache.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/exactness/truth.h"

namespace palimpsest::testing {

namespace {

constexpr Position kZeroClass = kNoPosition - 1;  // as a representative

constexpr double kClose = 1e-4;  // rounding error of a product of two cosines; rows are rounded at each merge

double norm_of(const double* row, int dim) {
  double sum = 0;
  for (int d = 0; d < dim; ++d) sum += row[d] * row[d];
  return std::sqrt(sum);
}

double cosine(const double* a, const double* b, int dim) {
  double sum = 0;
  for (int d = 0; d < dim; ++d) sum += a[d] * b[d];
  const double norms = norm_of(a, dim) * norm_of(b, dim);
  return norms > 0 ? sum / norms : 0;
}

}  // namespace

// Similarity of two clusters.
double Truth::likeness(int layer, int head, Position a, Position b) {
  const LayerGeometry& shape = hyper_.geometry.layer(layer);
  const double k = cosine(key(layer, head, a), key(layer, head, b), shape.key_width);
  const double v = cosine(value(layer, head, a), value(layer, head, b), shape.value_width);
  switch (method_.similarity) {
    case Similarity::kKey:
      return k;
    case Similarity::kValue:
      return v;
    case Similarity::kProduct:
      return k * v;
    case Similarity::kClipped:
      break;
  }
  return std::max(k, 0.0) * std::max(v, 0.0);
}

// `leaving`: the evicted representatives. Their merged tokens are still in table.kept.
void Truth::merge(const Cache& cache, int index, Table& table, const std::vector<Token>& leaving) {
  const int layer = hyper_.geometry.layer_of(index), head = hyper_.geometry.kv_head_of(index);
  const auto max = static_cast<std::size_t>((method_.gamma - 1) * budget(static_cast<std::size_t>(index)));
  std::map<Position, Position> theirs;  // merged token -> representative, in the cache
  for (const MergedToken& token : cache.merged(index)->tokens())
    theirs[token.position] = token.slot == MergedToken::kZeroClass
                                 ? kZeroClass
                                 : cache.table(index).position()[static_cast<std::size_t>(token.slot)];

  std::vector<std::vector<Token>> classes;  // evicted clusters, the representative first
  for (const Token& representative : leaving) {
    classes.push_back({representative});
    for (const Token& token : table.kept)
      if (token.representative == representative.position) classes.back().push_back(token);
  }
  const auto is_gone = [&](const Token& token) {
    return token.representative != kNoPosition && std::ranges::any_of(leaving, [&](const Token& representative) {
             return representative.position == token.representative;
           });
  };
  std::erase_if(table.kept, is_gone);
  const auto score = [](const std::vector<Token>& tokens) { return tokens.front().score; };
  std::ranges::sort(classes, {}, [](const auto& tokens) { return tokens.front().position; });
  std::ranges::stable_sort(classes, std::greater(), score);

  std::map<Position, std::vector<std::vector<Token>>> joining;  // target -> evicted clusters
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const Token& victim = classes[i].front();
    bool close = false;
    if (classes.size() > max) {  // those with the highest scores are merged, the others dropped
      const std::size_t other = i < max ? max : max - 1;
      close = max > 0 && same(victim.score, score(classes[other]));
      if (i >= max && !close) continue;
    }
    Position target = kNoPosition;
    double alike = method_.tau, second = 0;
    for (const Token& representative : table.kept) {
      const bool may = representative.representative == kNoPosition &&
                       representative.position < next_ - method_.recent(budget(static_cast<std::size_t>(index)));
      if (!may || representative.position >= next_) continue;
      const double r = likeness(layer, head, victim.position, representative.position);
      if (r >= alike) {
        second = target == kNoPosition ? second : alike;
        alike = r;
        target = representative.position;
      } else {
        second = std::max(second, r);
      }
    }
    close = close ||
            (target == kNoPosition ? second > alike - kClose : alike - std::max<double>(second, method_.tau) < kClose);
    const bool zero = method_.zero_class && method_.tau < 1;
    if (zero && target == kNoPosition && i < max) target = kZeroClass;
    for (const Token& token : classes[i]) {
      const auto found = theirs.find(token.position);
      if (found == theirs.end() || found->second == target) continue;
      if (!close)
        wrong(fmt::format("slot table {} before token {}: token {} joined {}, not {} (alike {})", index, next_,
                          token.position, found->second, target, alike));
      else if (verdict_.first_tie < 0)
        verdict_.first_tie = next_;
      target = found->second;
      break;
    }
    if (close && target != kNoPosition &&
        std::ranges::none_of(classes[i], [&](const Token& token) { return theirs.contains(token.position); })) {
      if (verdict_.first_tie < 0) verdict_.first_tie = next_;
      if (i >= max || (!zero && alike - method_.tau < kClose)) target = kNoPosition;
    }
    if (close && verdict_.first_close < 0) verdict_.first_close = next_;
    if (target != kNoPosition) joining[target].push_back(classes[i]);
  }
  for (const auto& [target, some] : joining) {
    if (target != kZeroClass) join(layer, head, table, target, some);
    for (const auto& tokens : some)
      if (target == kZeroClass) table.zero.insert(table.zero.end(), tokens.begin(), tokens.end());
  }

  std::vector<Position> positions;
  for (const auto& [position, representative] : theirs) positions.push_back(position);
  keep_best(table, positions, max, index);
  std::ranges::sort(table.kept, {}, &Token::position);
}

// Merges all clusters into `target` at once, with the weights and rows from before.
void Truth::join(int layer, int head, Table& table, Position target, const std::vector<std::vector<Token>>& classes) {
  const LayerGeometry& shape = hyper_.geometry.layer(layer);
  const bool mean = method_.merged_key == MergedKey::kMean;
  const auto own_norm = [&](const Token& token) {
    const double of_row = norm_of(key(layer, head, token.position), shape.key_width);
    return std::max(mean && token.norm > 0 ? token.norm : of_row, 1e-18);
  };
  struct Part {
    Position position;
    double norm, weight, size;
  };
  Token& representative = *std::ranges::find(table.kept, target, &Token::position);
  const double length = own_norm(representative);
  std::vector<Part> parts = {{target, length, 0, 0}};
  for (const Token& token : table.kept)
    if (stored_at(token) == target) parts[0].weight += token.score, ++parts[0].size;
  for (const auto& tokens : classes) {
    parts.push_back({tokens.front().position, own_norm(tokens.front()), 0, static_cast<double>(tokens.size())});
    for (const Token& token : tokens) parts.back().weight += token.score;
  }
  double sum = 0, sizes = 0;
  for (const Part& part : parts) sum += part.weight, sizes += part.size;
  std::vector<double> k(static_cast<std::size_t>(shape.key_width), 0),
      v(static_cast<std::size_t>(shape.value_width), 0);
  for (const Part& part : parts) {
    const double share = sum > 0 ? part.weight / sum : part.size / sizes;
    const double *from_k = key(layer, head, part.position), *from_v = value(layer, head, part.position);
    for (int d = 0; d < shape.key_width; ++d) k[d] += share * from_k[d] / part.norm;
    for (int d = 0; d < shape.value_width; ++d) v[d] += share * from_v[d];
  }
  representative.norm = length;
  for (const auto& tokens : classes) {
    const double factor = own_norm(tokens.front()) / length;
    for (Token token : tokens) {
      token.representative = target;
      token.factor *= factor;
      table.kept.push_back(token);
    }
  }
  const double scale = mean ? length : length / norm_of(k.data(), shape.key_width);
  for (int d = 0; d < shape.key_width; ++d) key(layer, head, target)[d] = k[d] * scale;
  std::copy_n(v.data(), shape.value_width, value(layer, head, target));
}

// Evicts the tokens with the lowest scores of the merged ones and the zero class, the older of equal ones first. If
// scores are equal within rounding, it follows the cache.
void Truth::keep_best(Table& table, const std::vector<Position>& theirs, std::size_t max, int index) {
  std::vector<Token> merged;
  for (const Token& token : table.kept)
    if (token.representative != kNoPosition) merged.push_back(token);
  std::erase_if(table.kept, [](const Token& token) { return token.representative != kNoPosition; });
  for (Token& token : table.zero) token.representative = kZeroClass;
  merged.insert(merged.end(), table.zero.begin(), table.zero.end());
  table.zero.clear();
  std::ranges::sort(merged, std::greater(), &Token::position);
  std::ranges::stable_sort(merged, std::greater(), &Token::score);
  const std::size_t stay = std::min(max, merged.size());
  const float boundary = stay < merged.size() ? merged[stay - (stay > 0 ? 1 : 0)].score : 0;
  for (std::size_t i = 0; i < merged.size(); ++i) {
    const bool there = std::ranges::binary_search(theirs, merged[i].position);
    if (there) (merged[i].representative == kZeroClass ? table.zero : table.kept).push_back(merged[i]);
    if (there == (i < stay)) continue;
    if (stay == merged.size() || !same(merged[i].score, boundary))
      wrong(fmt::format("slot table {} before token {}: merged token {} {}, score {}, the last that stays {}", index,
                        next_, merged[i].position, there ? "is there" : "is missing", merged[i].score, boundary));
    else if (verdict_.first_tie < 0)
      verdict_.first_tie = next_;
  }
}

}  // namespace palimpsest::testing
