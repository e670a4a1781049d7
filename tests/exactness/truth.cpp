#include "tests/exactness/truth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "palimpsest/policy/of_budget.h"
#include "tests/support/slot_rows.h"

namespace palimpsest::testing {

namespace {

// Rounds a row to the precision of a cache type.
void round_row(double* row, int dim, CacheType type) {
  const std::vector<float> rounded = rounded_to(type, std::vector<float>(row, row + dim));
  std::copy(rounded.begin(), rounded.end(), row);
}

std::vector<Position> positions_of(const SlotTable& table) {
  std::vector<Position> out;
  for (const Position position : table.position())
    if (position != kNoPosition) out.push_back(position);
  std::ranges::sort(out);
  return out;
}

}  // namespace

Truth::Truth(const Hyperparameters& hyper, const TruthOptions& options)
    : hyper_(hyper), options_(options), method_(options_.method) {
  for (int i = 0; i < hyper.ropes(); ++i) frequencies_.emplace_back(hyper.rope_table(i));
  angles_.resize(frequencies_.size());
  if (method_.evicts()) {
    policy_ = make_policy(method_.policy, method_.of_policy);
    signals_ = policy_->signals();
    if (signals_.model) policy_->prepare(options.model);
    if (signals_.attention_window) window_.emplace(*signals_.attention_window);
    budgets_ = first_budgets();
    set_budgets(*policy_, budgets_, method_.budget);
    shared_ = signals_.positions_only() && budgets_.empty() && method_.mechanism != Mechanism::kMatch;
  }
  windows_ = first_windows();
  shared_ = shared_ && windows_.empty();
  const auto heads = static_cast<std::size_t>(hyper.geometry.heads());
  tables_.resize(shared_ ? 1 : heads);
  for (std::size_t i = 0; i < heads; ++i)
    queries_.emplace_back(static_cast<std::size_t>(hyper.geometry.layer_geometry(static_cast<int>(i)).group()));
  references_ = queries_;
  keys_.resize(heads);
  values_.resize(heads);
}

// Order of a step: evict, insert, attend; after a chunk, evict down to the budget.
std::vector<std::vector<std::pair<Position, Position>>> Truth::kept() const {
  std::vector<std::vector<std::pair<Position, Position>>> all;
  for (const Table& table : tables_) {
    auto& kept = all.emplace_back();
    for (const Token& token : table.kept) kept.emplace_back(token.position, token.representative);
  }
  return all;
}

void Truth::begin(const Cache& cache, int count) {
  repeating_ = signals_.repeat && next_ == options_.prompt && repeated_ < options_.prompt;
  for (int t = 0; t < static_cast<int>(tables_.size()); ++t) settle_ties(cache, t, tables_[t]);
  const bool in_prompt = next_ < options_.prompt;
  if (!repeating_ && (in_prompt || !method_.evict_after)) evict(1, in_prompt ? Phase::kInPrompt : Phase::kLater);
  cache_ = &cache;
  count_ = count;
  for (Table& table : tables_) {
    for (int i = 0; i < count; ++i) table.kept.push_back({.position = next_ + i});
    lay(table, table.kept.size() - static_cast<std::size_t>(count));
  }
  for (int t = 0; t < static_cast<int>(tables_.size()); ++t) compare(cache, t, tables_[t]);
  const Position first = next_;
  next_ += count;
  if (repeating_) return;  // its tokens are removed again
  std::uint64_t hash = 0;
  for (std::size_t t = 0; t < tables_.size(); ++t)
    for (const Token& token : tables_[t].kept) {
      if (stored_at(token) < seen_from(t)) continue;
      for (const Position each : {token.position, stored_at(token)})  // merged: the slot, too
        hash = (hash ^ static_cast<std::uint64_t>(each)) * 0x9e3779b97f4a7c15;
    }
  verdict_.kept.emplace_back(first, hash);
}

void Truth::end() {
  if (signals_.repeat) {
    if (repeating_)
      take_back();
    else if (count_ > 1)
      evict(0, Phase::kInPrompt);
    for (Table& table : tables_)
      for (Token& token : table.kept) token.received = 0;
    return;
  }
  if (signals_.weights() && !signals_.attention_window)
    for (std::size_t t = 0; t < tables_.size(); ++t) score(t);
  if (window_) window_->read(next_ - count_, count_, options_.prompt);
  for (Table& table : tables_)
    for (Token& token : table.kept) {
      std::erase_if(token.history, [&](const auto& of_query) { return !window_->counts(of_query.first); });
      token.received = 0;
    }
  const bool ends = next_ == options_.prompt;
  if (count_ > 1 || ends || method_.evict_after)
    evict(0, ends ? Phase::kPromptEnd : next_ < options_.prompt ? Phase::kInPrompt : Phase::kLater);
}

// Removes the tokens of a step of the repetition; the last step ends the prompt.
void Truth::take_back() {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    score(t);
    tables_[t].kept.resize(tables_[t].kept.size() - static_cast<std::size_t>(count_), Token{});
  }
  next_ -= count_;
  repeated_ += count_;
  repeating_ = false;
  if (repeated_ == options_.prompt) evict(0, Phase::kPromptEnd);
}

// Tokens fill the newest page first.
void Truth::lay(Table& table, std::size_t from) const {
  for (std::size_t i = from; i < table.kept.size(); ++i) {
    const int page = i == 0 ? 0 : table.kept[i - 1].page;
    const bool full = std::ranges::count(table.kept.begin(), table.kept.begin() + static_cast<std::ptrdiff_t>(i), page,
                                         &Token::page) == this->page();
    table.kept[i].page = full ? page + 1 : page;
  }
}

void Truth::lay_again(Table& table) const {
  for (Token& token : table.kept) token.page = 0;
  lay(table, 0);
}

int Truth::surplus(std::size_t table, int coming, Phase phase) const {
  if (holds_window(table)) return 0;
  const int size = static_cast<int>(std::ranges::count(tables_[table].kept, kNoPosition, &Token::representative));
  const int target = budget(table) - method_.headroom;
  int over = size + (method_.evict_after ? 0 : coming) - target, min = method_.interval;
  switch (method_.schedule) {
    case Schedule::kStep:
      break;
    case Schedule::kPrompt:  // once
      if (phase != Phase::kPromptEnd) return 0;
      break;
    case Schedule::kPromptStep:
      if (phase == Phase::kInPrompt) return 0;
      if (phase == Phase::kPromptEnd) min = 1;
      break;
    case Schedule::kPage:  // a page of tokens at once
      over = size - target;
      min = page();
      break;
  }
  return over >= min || tables_[table].returns ? std::max(over, 0) : 0;
}

// After the prompt, evictions of at most `max_drop` tokens go on in each step until the budget is reached.
int Truth::now_of(int surplus, Phase phase) const {
  const int min = method_.schedule == Schedule::kPage ? page() : method_.interval;
  if (method_.max_drop == 0 || phase != Phase::kLater) return surplus;
  return std::min(surplus, std::max(method_.max_drop, surplus - min + 1));
}

void Truth::evict(int coming, Phase phase) {
  drop_unseen(coming, phase);
  if (policy_ == nullptr) return;
  for (int layer = 0; method_.splits_at_decisions() && layer < hyper_.layers; ++layer) {
    const int first = hyper_.geometry.first_head(layer), last = hyper_.geometry.first_head(layer + 1);
    if (first == last || !share_now(layer, coming, phase)) continue;
    const bool makes_room = !method_.evict_after && method_.schedule != Schedule::kPage;
    for (auto t = static_cast<std::size_t>(first); t < static_cast<std::size_t>(last); ++t) {
      const int keeps = budget(t) - method_.headroom - (makes_room ? coming : 0);
      if (const int count = static_cast<int>(tables_[t].kept.size()) - keeps; count > 0) evict(t, count);
    }
  }
  if (method_.splits_at_decisions()) return;
  const bool shares = phase == Phase::kPromptEnd && method_.splits_at_prompt_end();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const bool due = shares ? next_ > method_.budget - method_.headroom : surplus(t, coming, phase) > 0;
    if (due && (signals_.at_decision() || signals_.positions_only())) score(t);
  }
  if (shares) budgets_at_prompt_end();
  for (std::size_t t = 0; t < tables_.size(); ++t)
    if (const int all = surplus(t, coming, phase), count = now_of(all, phase); count > 0) {
      tables_[t].returns = count < all;
      if (method_.mechanism == Mechanism::kBlock && phase == Phase::kLater)
        evict_page(tables_[t]);
      else
        evict(t, count);
    } else {
      tables_[t].returns = false;
    }
}

bool Truth::may_leave(const Token& token, std::size_t table) const {
  for (const PositionRange& pin : method_.protection.pins)
    if (token.position >= pin.first && token.position < pin.last) return false;
  return token.position >= method_.sinks() && token.position < next_ - method_.recent(budget(table));
}

void Truth::evict_page(Table& table) {
  const std::size_t index = static_cast<std::size_t>(&table - tables_.data());
  std::map<int, std::vector<std::size_t>> pages;
  for (std::size_t i = 0; i < table.kept.size(); ++i) pages[table.kept[i].page].push_back(i);
  std::vector<std::pair<double, int>> means;
  for (const auto& [page, tokens] : pages) {
    if (static_cast<int>(tokens.size()) < this->page()) continue;
    if (!std::ranges::all_of(tokens, [&](std::size_t i) { return may_leave(table.kept[i], index); })) continue;
    double sum = 0, values = 0, keys = 0;
    for (const std::size_t i : tokens) {
      const Token& token = table.kept[i];
      sum += token.score;
      keys += token.square;
      values += token.square * token.score * token.score;
    }
    means.emplace_back(method_.scores_by_norms() ? std::sqrt(values / keys) : sum / this->page(), page);
  }
  std::ranges::sort(means);  // of equal means, the older page first
  if (means.size() > 1 && same(means[1].first, means[0].first) && verdict_.first_close < 0)
    verdict_.first_close = next_;
  drop(table, pages.at(means.at(0).second));
}

void Truth::evict(std::size_t index, int count) {
  Table& table = tables_[index];
  std::vector<std::size_t> order;  // unprotected tokens, lowest score first
  for (std::size_t i = 0; i < table.kept.size(); ++i)
    if (may_leave(table.kept[i], index) && table.kept[i].representative == kNoPosition) order.push_back(i);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return table.kept[i].score; });
  const auto last = static_cast<std::size_t>(count + method_.spare + method_.overlap);
  if (last < order.size()) {
    const float victim = table.kept[order[last - 1]].score, stays = table.kept[order[last]].score;
    if (same(stays, victim) && verdict_.first_close < 0) verdict_.first_close = next_;
  }
  if (method_.spare + method_.overlap > 0) note_other_victims(table, order, last);
  order.resize(last);
  drop(table, not_spared(std::move(order)));
  if (method_.mechanism == Mechanism::kBlock) lay_again(table);
}

// Spared are the newest victims, and others evenly spaced by age. Returns the rest by age.
std::vector<std::size_t> Truth::not_spared(std::vector<std::size_t> victims) const {
  std::ranges::sort(victims);
  victims.resize(victims.size() - static_cast<std::size_t>(method_.overlap));
  const std::size_t all = victims.size(), spared = static_cast<std::size_t>(method_.spare);
  for (std::size_t i = spared; i-- > 0;)
    victims.erase(victims.begin() + static_cast<std::ptrdiff_t>((2 * i + 1) * all / (2 * spared)));
  return victims;
}

// The first `last` of `order` are victims. One that ties with a kept token may stay instead: then others are spared.
void Truth::note_other_victims(Table& table, const std::vector<std::size_t>& order, std::size_t last) {
  if (last == 0 || last >= order.size()) return;
  const auto positions = [&](std::vector<std::size_t> victims) {
    std::vector<Position> out;
    for (const std::size_t i : not_spared(std::move(victims))) out.push_back(table.kept[i].position);
    return out;
  };
  const float boundary = table.kept[order[last - 1]].score;
  const auto ties = [&](std::size_t i) { return same(table.kept[order[i]].score, boundary); };
  const std::vector<std::size_t> victims(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(last));
  const std::vector<Position> ours = positions(victims);
  for (std::size_t in = last; in < order.size() && ties(in); ++in)
    for (std::size_t out = last; out-- > 0 && ties(out);) {
      std::vector<std::size_t> other = victims;
      other[out] = order[in];
      const std::vector<Position> theirs = positions(std::move(other));
      auto& [leave, stay] = table.otherwise.emplace_back();
      std::ranges::set_difference(theirs, ours, std::back_inserter(leave));
      std::ranges::set_difference(ours, theirs, std::back_inserter(stay));
    }
}

void Truth::settle_spared(const std::vector<Position>& theirs, Table& table) {
  const auto is_there = [&](Position p) { return std::ranges::binary_search(theirs, p); };
  for (const auto& [leave, stay] : table.otherwise) {
    if (leave.empty() || !std::ranges::none_of(leave, is_there) || !std::ranges::all_of(stay, is_there)) continue;
    std::vector<Token> kept, dropped;
    for (auto* tokens : {&table.kept, &table.dropped})
      for (const Token& token : *tokens) {
        const bool was_kept = tokens == &table.kept;
        const bool changes = std::ranges::binary_search(was_kept ? leave : stay, token.position);
        (was_kept != changes ? kept : dropped).push_back(token);
      }
    table.kept = std::move(kept), table.dropped = std::move(dropped);
    for (auto* tokens : {&table.kept, &table.dropped}) std::ranges::sort(*tokens, {}, &Token::position);
    ++verdict_.ties;
    if (verdict_.first_tie < 0) verdict_.first_tie = next_;
    break;
  }
  table.otherwise.clear();
}

void Truth::drop(Table& table, const std::vector<std::size_t>& order) {
  table.boundary = -std::numeric_limits<float>::infinity();
  for (const std::size_t i : order) {
    table.boundary = std::max(table.boundary, table.kept[i].score);
    table.dropped.push_back(table.kept[i]);
  }
  for (std::size_t i = order.size(); i-- > 0;)
    table.kept.erase(table.kept.begin() + static_cast<std::ptrdiff_t>(order[i]));
}

// Equal within rounding. Kernels round attention weights below the smallest normal float to 0.
bool Truth::same(double a, double b) const {
  return std::abs(a - b) <= options_.same_score * std::abs(b) + double{std::numeric_limits<float>::min()};
}

bool Truth::tied(const Table& table, const Token& token) const {
  return !table.dropped.empty() && same(token.score, table.boundary);
}

// Of tokens that tied in the eviction after the last step, those leave that the engine evicted: the scores of the
// eviction before this step depend on it. (Pooling over neighbours gives many equal scores.)
void Truth::settle_ties(const Cache& cache, int index, Table& table) {
  if (table.dropped.empty()) return;
  const std::vector<Position> theirs = positions_of(cache.table(cache.table_of(index)));
  settle_spared(theirs, table);
  const auto is_there = [&](const Token& token) { return std::ranges::binary_search(theirs, token.position); };
  for (Token& out : table.dropped) {
    if (!is_there(out) || !tied(table, out)) continue;
    Token* in = nullptr;  // the nearest score of those that left
    for (Token& kept : table.kept)
      if (kept.representative == kNoPosition && !is_there(kept) && tied(table, kept) &&
          (in == nullptr || std::abs(kept.score - out.score) < std::abs(in->score - out.score)))
        in = &kept;
    if (in == nullptr) continue;
    std::swap(out, *in);
    ++verdict_.ties;
    if (verdict_.first_tie < 0) verdict_.first_tie = next_;
  }
  for (auto* tokens : {&table.kept, &table.dropped}) std::ranges::sort(*tokens, {}, &Token::position);
  if (method_.mechanism == Mechanism::kBlock) lay_again(table);
}

// If the sets differ only by tokens with scores equal within rounding, ours becomes the engine's.
void Truth::compare(const Cache& cache, int index, Table& table) {
  const std::vector<Position> theirs = positions_of(cache.table(cache.table_of(index)));
  ++verdict_.sets;
  settle_spared(theirs, table);
  const auto is_there = [&](const Token& token) { return std::ranges::binary_search(theirs, token.position); };
  std::vector<Token> both, missing, returned, merged, leaving;
  for (const Token& token : table.kept)
    (token.representative != kNoPosition ? merged : is_there(token) ? both : missing).push_back(token);
  for (const Token& token : table.dropped) (is_there(token) ? returned : leaving).push_back(token);
  leaving.insert(leaving.end(), missing.begin(), missing.end());
  const auto is_tied = [&](const Token& token) { return tied(table, token); };
  const bool known = both.size() + returned.size() == theirs.size() && missing.size() == returned.size();
  // A budget that depends on rounding may differ by one: one set contains the other.
  const int more = static_cast<int>(returned.size()) - static_cast<int>(missing.size());
  const bool other_budget =
      table.close_budget && both.size() + returned.size() == theirs.size() && missing.size() + returned.size() == 1;
  if (other_budget) budgets_[static_cast<std::size_t>(index)] += more;
  if (!other_budget && (!known || !std::ranges::all_of(missing, is_tied) || !std::ranges::all_of(returned, is_tied))) {
    wrong(fmt::format(
        "slot table {} before token {}: {} tokens where there should be {}, {} of ours are missing, {} were dropped; "
        "the first missing scores {}, the last that left {}",
        index, next_, theirs.size(), both.size() + missing.size(), missing.size(), returned.size(),
        missing.empty() ? 0 : missing.front().score, table.boundary));
  } else if (!missing.empty() || !returned.empty()) {
    verdict_.ties += static_cast<long long>(std::max(missing.size(), returned.size()));
    if (verdict_.first_tie < 0) verdict_.first_tie = next_;
  }
  for (const auto& some : {returned, merged}) both.insert(both.end(), some.begin(), some.end());
  std::ranges::sort(both, {}, &Token::position);
  table.kept = std::move(both);
  table.dropped.clear();
  table.close_budget = false;
  if (method_.mechanism == Mechanism::kMerge) merge(cache, index, table, leaving);
  if (method_.mechanism == Mechanism::kMatch && !leaving.empty()) match(cache, index, table, leaving);
}

void Truth::wrong(const std::string& what) {
  if (verdict_.kept_wrong++ == 0) verdict_.first_wrong = what;
}

const Truth::Angle& Truth::angle(int rope, Position distance) {
  std::vector<Angle>& known = angles_[static_cast<std::size_t>(rope)];
  const RopeFrequencies& frequencies = frequencies_[static_cast<std::size_t>(rope)];
  while (static_cast<Position>(known.size()) <= distance) {
    Angle next;
    for (int p = 0; p < frequencies.pairs(); ++p) {
      const double a = frequencies.angle(static_cast<Position>(known.size()), p);
      next.cos.push_back(std::cos(a));
      next.sin.push_back(std::sin(a));
    }
    known.push_back(std::move(next));
  }
  return known[static_cast<std::size_t>(distance)];
}

double* Truth::key(int layer, int head, Position position) {
  const LayerGeometry& shape = hyper_.geometry.layer(layer);
  return keys_[hyper_.geometry.head(layer, head)].data() + position * shape.key_width;
}
double* Truth::value(int layer, int head, Position position) {
  const LayerGeometry& shape = hyper_.geometry.layer(layer);
  return values_[hyper_.geometry.head(layer, head)].data() + position * shape.value_width;
}

void Truth::rotate(double* key, int rope, Position distance, double sign) {
  const Angle& by = angle(rope, distance);
  const int pairs = frequencies_[static_cast<std::size_t>(rope)].pairs();
  const bool halves = frequencies_[static_cast<std::size_t>(rope)].kind() == RopeKind::kHalves;
  for (int i = 0; i < pairs; ++i) {
    double &a = key[halves ? i : 2 * i], &b = key[halves ? i + pairs : 2 * i + 1];
    const double c = by.cos[i], s = sign * by.sin[i], rotated = a * c - b * s;
    b = a * s + b * c;
    a = rotated;
  }
}

// Stores keys and values in the precision of the cache's types.
void Truth::store(int layer, const Layer& rows) {
  const LayerGeometry& shape = hyper_.geometry.layer(layer);
  for (int h = 0; h < shape.kv_heads; ++h) {
    const auto at = static_cast<std::size_t>(hyper_.geometry.head(layer, h));
    keys_[at].resize(static_cast<std::size_t>(next_ * shape.key_width));
    values_[at].resize(static_cast<std::size_t>(next_ * shape.value_width));
    for (int t = 0; t < count_; ++t) {
      const Position position = next_ - count_ + t;
      double *k = key(layer, h, position), *v = value(layer, h, position);
      std::copy_n(rows.k + (t * shape.kv_heads + h) * shape.key_width, shape.key_width, k);
      std::copy_n(rows.v + (t * shape.kv_heads + h) * shape.value_width, shape.value_width, v);
      if (options_.type.value != CacheType::kF32) round_row(v, shape.value_width, options_.type.value);
      if (options_.type.key == CacheType::kF32) continue;
      if (options_.rotated) rotate(k, hyper_.rope_of(layer), position, 1);
      round_row(k, shape.key_width, options_.type.key);
      if (options_.rotated) rotate(k, hyper_.rope_of(layer), position, -1);
    }
  }
}

void Truth::layer(int index, const Layer& rows) {
  if (const int source = hyper_.kv_layer(index); source != index) {  // no policy sees its attention
    counts_ = false;
    for (int h = 0; h < hyper_.geometry.layer(source).kv_heads; ++h)
      for (int query = 0; query < count_; ++query) attend(source, rows, h, query);
    counts_ = true;
    return;
  }
  store(index, rows);
  if (signals_.reads_inserted()) report_kv(index, rows);
  if (signals_.query_moments) ask(index, rows);
  if (method_.mechanism == Mechanism::kMatch) keep_references(index, rows);
  for (int h = 0; h < hyper_.geometry.layer(index).kv_heads; ++h)
    for (int query = 0; query < count_; ++query) attend(index, rows, h, query);
}

void Truth::attend(int layer, const Layer& rows, int kv_head, int query) {
  const LayerGeometry& shape = hyper_.geometry.layer(layer);
  const auto index = static_cast<std::size_t>(shared_ ? 0 : hyper_.geometry.head(layer, kv_head));
  Table& table = tables_[index];
  const Position now = next_ - count_ + query;
  const bool window = method_.strict() && !holds_window(index);
  const int seen_at_once = budget(index) - method_.headroom + (method_.evict_after ? 1 : 0);
  const Position local = shape.window;  // the layer's attention window; it hides sinks, too
  std::vector<Token*> seen;
  Position hidden = 0;                 // tokens hidden by the layer's attention window only
  std::vector<Position> slots, ranks;  // of tokens that are not merged; of each one seen: that of its slot's token
  double largest_value = 0;
  for (Token& token : table.kept) {
    const bool old = window && token.position <= now - (seen_at_once - method_.sinks());
    if (token.position > now || (old && token.position >= method_.sinks())) continue;
    if (stored_at(token) <= now - local || (shape.chunked && stored_at(token) < now / local * local)) {
      ++hidden;
      continue;
    }
    seen.push_back(&token);
    const double* v = value(layer, kv_head, stored_at(token));
    for (int d = 0; d < shape.value_width; ++d) largest_value = std::max(largest_value, std::abs(v[d]));
  }

  for (const Token* token : seen)
    if (token->representative == kNoPosition) slots.push_back(token->position);
  const auto tokens = static_cast<Position>(slots.size());
  for (const Token* token : seen) ranks.push_back(std::ranges::lower_bound(slots, stored_at(*token)) - slots.begin());
  const int group = shape.group();
  const int rope = hyper_.rope_of(layer), pairs = frequencies_[static_cast<std::size_t>(rope)].pairs();
  const double magnitude = pairs == 0 ? 1 : frequencies_[static_cast<std::size_t>(rope)].magnitude();
  const bool halves = frequencies_[static_cast<std::size_t>(rope)].kind() == RopeKind::kHalves;
  std::vector<double> k(static_cast<std::size_t>(shape.key_width)), out;
  std::vector<double> p(static_cast<std::size_t>(group) * seen.size()), size(static_cast<std::size_t>(group));
  for (std::size_t i = 0; i < seen.size(); ++i) {
    std::copy_n(key(layer, kv_head, stored_at(*seen[i])), shape.key_width, k.data());
    for (double& x : k) x *= seen[i]->factor;
    // The query is not rotated; the key is rotated backwards by the distance.
    const bool cache = method_.positions == Positions::kCache;
    const Position distance = cache ? tokens - 1 - ranks[i] : now - rotated_at(*seen[i]);
    const bool by_position = !hyper_.query_factors.empty();  // both are rotated
    if (options_.copied && options_.type.key != CacheType::kF32) {
      rotate(k.data(), rope, hidden + ranks[i], 1);
      round_row(k.data(), shape.key_width, options_.type.key);
      if (!by_position) rotate(k.data(), rope, hidden + tokens - 1, -1);
    } else if (by_position) {
      rotate(k.data(), rope, cache ? hidden + ranks[i] : rotated_at(*seen[i]), 1);
    } else {
      rotate(k.data(), rope, distance, -1);
    }
    for (int g = 0; g < group; ++g) {
      const float* const row = rows.q + (query * shape.query_heads + kv_head * group + g) * shape.key_width;
      std::vector<double> q(row, row + shape.key_width);
      if (by_position) {
        rotate(q.data(), rope, cache ? hidden + tokens - 1 : now, 1);
        for (std::size_t d = 0; d < q.size(); ++d) q[d] *= hyper_.query_factors[static_cast<std::size_t>(layer)][d];
      }
      double sum = 0, terms = 0;
      for (int d = 0; d < shape.key_width; ++d) {
        const bool rotates = d < 2 * pairs;
        const double term = q[d] * k[d] * (rotates ? magnitude * magnitude : 1);
        sum += term;
        if (!rotates) terms += std::abs(term);
      }
      for (int i = 0; i < pairs; ++i) {
        const int a = halves ? i : 2 * i, b = halves ? i + pairs : 2 * i + 1;
        terms += std::sqrt((q[a] * q[a] + q[b] * q[b]) * (k[a] * k[a] + k[b] * k[b])) * magnitude * magnitude;
      }
      const double score = sum * hyper_.attention_scale, cap = hyper_.attention_soft_cap;
      const double slope = hyper_.alibi.empty() ? 0 : hyper_.alibi[static_cast<std::size_t>(kv_head * group + g)];
      p[g * seen.size() + i] =
          (cap == 0 ? score : cap * std::tanh(score / cap)) - slope * static_cast<double>(distance) + seen[i]->bias;
      size[g] = std::max(size[g], terms * hyper_.attention_scale);
    }
  }
  std::vector<double> of_group(seen.size(), 0);  // each token's weight of this query
  for (int g = 0; g < group; ++g) {
    double* w = p.data() + g * seen.size();
    const auto& sinks = hyper_.sink_logits;
    const double sink = sinks.empty()
                            ? -INFINITY
                            : sinks[static_cast<std::size_t>(layer)][static_cast<std::size_t>(kv_head * group + g)];
    const double top = std::max(*std::max_element(w, w + seen.size()), sink);
    double sum = std::exp(sink - top);
    for (std::size_t i = 0; i < seen.size(); ++i) sum += w[i] = std::exp(w[i] - top);
    out.assign(static_cast<std::size_t>(shape.value_width), 0);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      w[i] /= sum;
      if (counts_) seen[i]->sum += w[i] / group;
      double& greatest = of_group[i];
      greatest =
          signals_.reduction() == WeightReduction::kMeanOverGroup ? greatest + w[i] / group : std::max(greatest, w[i]);
      const double* v = value(layer, kv_head, stored_at(*seen[i]));
      for (int d = 0; d < shape.value_width; ++d) out[d] += w[i] * v[d];
    }
    const int head = kv_head * group + g;
    const float* theirs = rows.out + (query * shape.query_heads + head) * shape.value_width;
    double error = 0;
    for (int d = 0; d < shape.value_width; ++d) {
      const double difference = std::abs(theirs[d] - out[d]);
      error = std::isnan(difference) ? INFINITY : std::max(error, difference);
    }
    error /= largest_value;
    verdict_.worst_plain = std::max(verdict_.worst_plain, error);
    error /= std::max(1.0, size[g] / 8 * std::sqrt(std::max(1.0, shape.key_width / 8.0)));
    ++verdict_.outputs;
    if (error <= verdict_.worst) continue;
    verdict_.worst = error;
    verdict_.where = fmt::format("layer {}, head {}, token {}", layer, head, now);
  }
  for (std::size_t i = 0; counts_ && i < seen.size(); ++i) {
    if (window_) {
      seen[i]->history.emplace_back(now, of_group[i]);
      continue;
    }
    double& received = seen[i]->received;
    received =
        signals_.reduction() == WeightReduction::kMaxOverAll ? std::max(received, of_group[i]) : received + of_group[i];
  }
}

}  // namespace palimpsest::testing
