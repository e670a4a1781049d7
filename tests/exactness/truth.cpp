#include "tests/exactness/truth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "palimpsest/attention/element.h"

namespace palimpsest::testing {

namespace {

double stored(double x, CacheType type) {
  std::byte bytes[4];
  store_element(bytes, type, 0, static_cast<float>(x));
  return load_element(bytes, type, 0);
}

std::vector<Position> positions_of(const SlotTable& table) {
  std::vector<Position> out;
  for (const Position position : table.position())
    if (position != kNoPosition) out.push_back(position);
  std::ranges::sort(out);
  return out;
}

}  // namespace

Truth::Truth(const Hyperparameters& hyper, const Method& method, CacheType type, bool rotated, bool shared)
    : hyper_(hyper), method_(method), type_(type), rotated_(rotated), shared_(shared), frequencies_(hyper.rope) {
  if (method.policy != "none") policy_ = make_policy(method.policy);
  const auto heads = static_cast<std::size_t>(hyper.layers * hyper.kv_heads);
  tables_.resize(shared ? 1 : heads);
  keys_.resize(heads);
  values_.resize(heads);
}

void Truth::begin(const Cache& cache, int count) {
  if (next_ > 0) evict(method_.budget - 1);
  count_ = count;
  for (Table& table : tables_)
    for (int i = 0; i < count; ++i) table.kept.push_back({.position = next_ + i});
  for (int t = 0; t < static_cast<int>(tables_.size()); ++t) compare(cache.table(t), t, tables_[t]);
  next_ += count;
}

void Truth::end() {
  if (count_ > 1) evict(method_.budget);
}

void Truth::evict(int keep) {
  if (policy_ != nullptr)
    for (Table& table : tables_) evict(table, keep);
}

void Truth::evict(Table& table, int keep) {
  const int surplus = static_cast<int>(table.kept.size()) - keep;
  if (surplus < method_.every) return;
  std::vector<Position> position;
  std::vector<float> score;
  for (const Token& token : table.kept) {
    position.push_back(token.position);
    score.push_back(token.score);
  }
  policy_->score({.position = position, .fresh = count_}, score);
  for (std::size_t i = 0; i < score.size(); ++i) table.kept[i].score = score[i];

  for (int i = 0; i < surplus; ++i) {
    auto victim = table.kept.end();
    for (auto it = table.kept.begin(); it != table.kept.end(); ++it) {
      const bool guarded = it->position < method_.protection.sinks || it->position >= next_ - method_.protection.recent;
      if (!guarded && (victim == table.kept.end() || it->score < victim->score)) victim = it;
    }
    table.boundary = table.dropped.empty() ? victim->score : std::max(table.boundary, victim->score);
    table.dropped.push_back(*victim);
    table.kept.erase(victim);
  }
}

bool Truth::tied(const Table& table, const Token& token) const {
  return !table.dropped.empty() && std::abs(double{token.score} - table.boundary) <= 1e-5 * std::abs(table.boundary);
}

// Where the sets differ by tokens that scored the same to rounding, ours becomes theirs.
void Truth::compare(const SlotTable& actual, int index, Table& table) {
  const std::vector<Position> theirs = positions_of(actual);
  ++verdict_.sets;
  const auto is_there = [&](const Token& token) { return std::ranges::binary_search(theirs, token.position); };
  std::vector<Token> both, missing, returned;
  for (const Token& token : table.kept) (is_there(token) ? both : missing).push_back(token);
  std::ranges::copy_if(table.dropped, std::back_inserter(returned), is_there);
  const auto is_tied = [&](const Token& token) { return tied(table, token); };
  const bool known = both.size() + returned.size() == theirs.size() && missing.size() == returned.size();
  if (!known || !std::ranges::all_of(missing, is_tied) || !std::ranges::all_of(returned, is_tied)) {
    if (verdict_.kept_wrong++ == 0)
      verdict_.first_wrong = fmt::format(
          "slot table {} before token {}: {} tokens where there should be {}, {} of ours are missing, {} were dropped",
          index, next_, theirs.size(), table.kept.size(), missing.size(), returned.size());
  } else if (!missing.empty()) {
    verdict_.ties += static_cast<long long>(missing.size());
    if (verdict_.first_tie < 0) verdict_.first_tie = next_;
  }
  both.insert(both.end(), returned.begin(), returned.end());
  std::ranges::sort(both, {}, &Token::position);
  table.kept = std::move(both);
  table.dropped.clear();
}

const Truth::Angle& Truth::angle(Position distance) {
  while (static_cast<Position>(angles_.size()) <= distance) {
    Angle next;
    for (int p = 0; p < frequencies_.pairs(); ++p) {
      const double a = frequencies_.angle(static_cast<Position>(angles_.size()), p);
      next.cos.push_back(std::cos(a));
      next.sin.push_back(std::sin(a));
    }
    angles_.push_back(std::move(next));
  }
  return angles_[static_cast<std::size_t>(distance)];
}

double* Truth::key(int layer, int head, Position position) {
  return keys_[layer * hyper_.kv_heads + head].data() + position * hyper_.head_dim;
}
double* Truth::value(int layer, int head, Position position) {
  return values_[layer * hyper_.kv_heads + head].data() + position * hyper_.value_dim;
}

void Truth::turn(double* key, const Angle& angle, double sign) const {
  const int pairs = frequencies_.pairs();
  const bool halves = frequencies_.kind() == RopeKind::kHalves;
  for (int i = 0; i < pairs; ++i) {
    double &a = key[halves ? i : 2 * i], &b = key[halves ? i + pairs : 2 * i + 1];
    const double c = angle.cos[i], s = sign * angle.sin[i], turned = a * c - b * s;
    b = a * s + b * c;
    a = turned;
  }
}

// Keys and values as the cache's type can hold them; f32 is left as the model gave it.
void Truth::store(int layer, const Layer& rows) {
  for (int h = 0; h < hyper_.kv_heads; ++h) {
    const auto at = static_cast<std::size_t>(layer * hyper_.kv_heads + h);
    keys_[at].resize(static_cast<std::size_t>(next_ * hyper_.head_dim));
    values_[at].resize(static_cast<std::size_t>(next_ * hyper_.value_dim));
    for (int t = 0; t < count_; ++t) {
      const Position position = next_ - count_ + t;
      double *k = key(layer, h, position), *v = value(layer, h, position);
      std::copy_n(rows.k + (t * hyper_.kv_heads + h) * hyper_.head_dim, hyper_.head_dim, k);
      std::copy_n(rows.v + (t * hyper_.kv_heads + h) * hyper_.value_dim, hyper_.value_dim, v);
      if (type_ == CacheType::kF32) continue;
      if (rotated_) turn(k, angle(position), 1);
      for (int d = 0; d < hyper_.head_dim; ++d) k[d] = stored(k[d], type_);
      for (int d = 0; d < hyper_.value_dim; ++d) v[d] = stored(v[d], type_);
      if (rotated_) turn(k, angle(position), -1);
    }
  }
}

void Truth::layer(int index, const Layer& rows) {
  store(index, rows);
  for (int h = 0; h < hyper_.kv_heads; ++h)
    for (int query = 0; query < count_; ++query) attend(index, rows, h, query);
}

void Truth::attend(int layer, const Layer& rows, int kv_head, int query) {
  Table& table = tables_[shared_ ? 0 : layer * hyper_.kv_heads + kv_head];
  const Position now = next_ - count_ + query;
  const bool window = method_.windowed() && method_.every == 1;
  std::vector<Token*> seen;
  double largest_value = 0;
  for (Token& token : table.kept) {
    const bool old = window && token.position <= now - (method_.budget - method_.protection.sinks);
    if (token.position > now || (old && token.position >= method_.protection.sinks)) continue;
    seen.push_back(&token);
    const double* v = value(layer, kv_head, token.position);
    for (int d = 0; d < hyper_.value_dim; ++d) largest_value = std::max(largest_value, std::abs(v[d]));
  }

  const int group = hyper_.query_heads / hyper_.kv_heads;
  const double magnitude = frequencies_.kind() == RopeKind::kNone ? 1 : frequencies_.magnitude();
  std::vector<double> k(static_cast<std::size_t>(hyper_.head_dim)), out;
  std::vector<double> p(static_cast<std::size_t>(group) * seen.size()), size(static_cast<std::size_t>(group));
  for (std::size_t i = 0; i < seen.size(); ++i) {
    std::copy_n(key(layer, kv_head, seen[i]->position), hyper_.head_dim, k.data());
    // The query stands still, the key is turned back by the distance.
    const bool cache = method_.positions == Positions::kCache;
    const Position distance = cache ? static_cast<Position>(seen.size() - 1 - i) : now - seen[i]->position;
    if (frequencies_.pairs() > 0) turn(k.data(), angle(distance), -1);
    for (int g = 0; g < group; ++g) {
      const float* q = rows.q + (query * hyper_.query_heads + kv_head * group + g) * hyper_.head_dim;
      double sum = 0, terms = 0;
      for (int d = 0; d < hyper_.head_dim; ++d) {
        const bool turns = d < 2 * frequencies_.pairs();
        const double term = q[d] * k[d] * (turns ? magnitude * magnitude : 1);
        sum += term;
        terms += std::abs(term);
      }
      p[g * seen.size() + i] = sum * hyper_.attention_scale;
      size[g] = std::max(size[g], terms * hyper_.attention_scale);
    }
  }
  for (int g = 0; g < group; ++g) {
    double* w = p.data() + g * seen.size();
    const double top = *std::max_element(w, w + seen.size());
    double sum = 0;
    for (std::size_t i = 0; i < seen.size(); ++i) sum += w[i] = std::exp(w[i] - top);
    out.assign(static_cast<std::size_t>(hyper_.value_dim), 0);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      w[i] /= sum;
      seen[i]->received += w[i] / group;
      const double* v = value(layer, kv_head, seen[i]->position);
      for (int d = 0; d < hyper_.value_dim; ++d) out[d] += w[i] * v[d];
    }
    const int head = kv_head * group + g;
    const float* theirs = rows.out + (query * hyper_.query_heads + head) * hyper_.value_dim;
    double error = 0;
    for (int d = 0; d < hyper_.value_dim; ++d) {
      const double difference = std::abs(theirs[d] - out[d]);
      error = std::isnan(difference) ? INFINITY : std::max(error, difference);
    }
    error /= largest_value;
    verdict_.worst_plain = std::max(verdict_.worst_plain, error);
    error /= std::max(1.0, size[g] / 8);
    ++verdict_.outputs;
    if (error <= verdict_.worst) continue;
    verdict_.worst = error;
    verdict_.where = fmt::format("layer {}, head {}, token {}", layer, head, now);
  }
}

}  // namespace palimpsest::testing
