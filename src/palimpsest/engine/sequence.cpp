#include "palimpsest/engine/sequence.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

#include "palimpsest/attention/read_rows.h"
#include "palimpsest/budget/split.h"
#include "palimpsest/core/error.h"
#include "palimpsest/engine/merge.h"
#include "palimpsest/engine/query_statistics.h"
#include "palimpsest/engine/rerotate.h"
#include "palimpsest/model/fingerprint.h"

namespace palimpsest {
namespace {

SessionOptions checked(const SessionOptions& options) {
  if (options.chunk < 1) fail("chunk {}: give at least 1 token", options.chunk);
  return options;
}

}  // namespace

// Which chunks are exact, for sinks + window (s sinks, budget B):
//
//   evicting at every token  any: the query at p sees the sinks and the last B - s tokens by a mask
//   else                     up to the next eviction: no token leaves inside it, so no mask is needed
//
// Behind a mask the sinks are met by a query of their own, at the rank that it would have if the others had left. Keys
// that were turned when they were written at their rank (delta) have no such query: they are of the second kind.
//
// With ALiBi nothing turns: ranks are told to the kernel, which takes distances from them.
AttentionRule attention_rule(const Method& m, PositionKind kind) {
  AttentionRule rule;
  rule.rotation = kind == PositionKind::kRotary ? Rotation::kAtWrite : Rotation::kNever;
  const bool renumbers = m.positions == Positions::kCache && m.cache && (m.evicts() || m.rerotate != Rerotate::kAuto);
  if (kind == PositionKind::kLearned && renumbers && m.evicts())
    fail(
        "this model has learned positions, which cannot be renumbered without reading the text again: use "
        "positions=original, or --method window-recompute");
  if (kind == PositionKind::kAlibi && renumbers) {
    rule.rank_distance = true;
    rule.two_query = m.strict();
  } else if (kind == PositionKind::kRotary && renumbers) {
    rule.two_query = m.rerotate == Rerotate::kTwoQuery || (m.rerotate == Rerotate::kAuto && m.windowed());
    rule.at_rank = m.rerotate == Rerotate::kDelta;
    if (!rule.two_query && !rule.at_rank)
      rule.rotation = m.rerotate == Rerotate::kRecompute ? Rotation::kRecompute : Rotation::kLate;
    if (m.strict() && !rule.at_rank) rule.two_query = true;
  }
  if (rule.two_query) rule.sinks = m.sinks();
  if (m.strict() && m.cache && !rule.at_rank) {
    rule.sinks = m.sinks();
    rule.window = m.budget - m.sinks();
  }
  return rule;
}

CacheOptions cache_options(const SessionOptions& options, const CacheOptions& shape, PositionKind kind, int group) {
  validate_pages(options.method, options.method.budget, options.page_size);
  CacheOptions cache = shape;
  cache.type = options.cache_type;
  cache.page_size = options.page_size;
  cache.mechanism = options.method.mechanism;
  const Needs needs = Evictor(options.method).needs();
  cache.shared = needs.positions_only() && options.method.split == "uniform";
  cache.columns = needs.columns();
  cache.head_floats = needs.queries ? group * query_floats(cache.head_dim) : 0;
  const AttentionRule rule = attention_rule(options.method, kind);
  const Rotation rotation = rule.rotation;
  cache.track_rank = at_rank(rotation) || rule.rank_distance;
  const bool rounds_again = rotation == Rotation::kRecompute || options.method.rerotate == Rerotate::kDelta;
  if (rounds_again && cache.type == CacheType::kQ8_0)
    fail("cache type q8_0 with rerotate {}: turned keys would be rounded once more; use rerotate=fused",
         get_option(options.method, "rerotate"));
  cache.rotated_half = rotation == Rotation::kLate && options.method.rerotate == Rerotate::kCachedHalf;
  return cache;
}

std::vector<int> head_budgets(const Method& m, int layers, int kv_heads, const std::string& head_list) {
  validate(m);
  if (!m.evicts()) return {};
  if (m.split == "duo" && head_list.empty())
    fail(
        "split duo: no list of heads lies beside the model (model.duo beside model.gguf): `palimpsest heads` makes "
        "one; or give split=FILE");
  const int recent = m.recent(0);  // a share is of what a head is given
  const int least = m.sinks() + recent + m.slack + m.refresh + 1 + (recent == 0 ? 1 : 0);
  const SplitOf of{
      .budget = m.budget, .guarded = m.sinks() + m.recent(), .layers = layers, .kv_heads = kv_heads, .least = least};
  const auto budgets = split_budget(m.split == "duo" ? head_list : m.split, of);
  for (const int tokens : budgets)
    if (m.sinks() + m.recent(tokens) + m.slack + m.refresh >= tokens)
      fail("a head's budget of {} tokens is not above sinks {} + recent {}: raise it or protect fewer tokens", tokens,
           m.sinks(), m.recent(tokens));
  return budgets;
}

PolicyModel policy_model(const Model& model, const Method& method) {
  const Hyperparameters& hyper = model.hyper();
  return {.path = model.path(),
          .fingerprint = fingerprint(model),
          .layers = hyper.layers,
          .kv_heads = hyper.kv_heads,
          .head_dim = hyper.head_dim,
          .value_dim = hyper.value_dim,
          .scorer = method.scorer};
}

Sequence::Sequence(const Decoder& decoder, const SessionOptions& options, std::shared_ptr<Workers> workers,
                   std::shared_ptr<PagePool> pool)
    : options_(checked(options)),
      evictor_(options.method, head_budgets(options.method, decoder.cache_options().layers,
                                            decoder.cache_options().kv_heads, decoder.model().hyper().head_list)),
      workers_(std::move(workers)) {
  const Hyperparameters& hyper = decoder.model().hyper();
  rule_ = attention_rule(options_.method, hyper.positions());
  group_ = hyper.query_heads / hyper.kv_heads;
  scale_ = hyper.attention_scale;
  const CacheOptions cache = cache_options(options_, decoder.cache_options(), hyper.positions(), group_);
  cache_ = std::make_unique<Cache>(cache, std::move(pool));
  evictor_.forget(*cache_);
  if (evictor_.needs().model) evictor_.prepare(policy_model(decoder.model(), options_.method));
  if (rule_.at_rank && !cache.pages)
    fail(
        "rerotate delta turns keys in the pages of the CPU's fast path: use fused on other devices and with "
        "--portable");
  const Needs& needs = evictor_.needs();
  const bool of_old_rows = (needs.keys || needs.values) && !needs.at_birth;
  if (of_old_rows && !cache.pages)
    fail(
        "policy {} compares keys in the pages of the CPU's fast path: use another on other devices and with --portable",
        options_.method.policy);
  if (needs.attention_sum && !cache.pages)
    fail(
        "policy {} asks for attention in two sums, which the CPU's fast path has: use another on other devices and "
        "with --portable",
        options_.method.policy);
  if (cache.mechanism == Mechanism::kMerge && !cache.pages)
    fail(
        "mechanism merge works on the pages of the CPU's fast path: use in-place on other devices and with --portable");
  if (of_old_rows && rule_.at_rank)
    fail("rerotate delta with policy {}: it compares keys, which delta keeps at other rotations; use rerotate=fused",
         options_.method.policy);
  if (options_.method.split != "uniform")
    for (int t = 0; t < cache_->tables(); ++t) validate_pages(options_.method, evictor_.budget(t), cache.page_size);
  if ((needs.received != Received::kMean || needs.queries) && !cache.pages)
    fail(
        "policy {} looks at more than mean weights, which the CPU's fast path has: use another on other devices and "
        "with --portable",
        options_.method.policy);
  if (rule_.at_rank || needs.queries || (cache.mechanism == Mechanism::kMerge && rule_.rotation == Rotation::kAtWrite))
    for (int i = 0; i < hyper.layers; ++i) {
      rope_of_.push_back(static_cast<std::size_t>(hyper.rope_of(i)));
      frequencies_.emplace_back(hyper.rope_table(hyper.rope_of(i)));
    }
  if (rule_.window > 0 && options_.method.split != "uniform") {
    for (int t = 0; t < cache_->tables(); ++t) windows_.push_back(evictor_.budget(t) - rule_.sinks);
    rule_.head_window = windows_;
  }
  if (needs.attention_window != 0) {
    weights_.resize(static_cast<std::size_t>(cache.kv_heads));
    weights_of_.resize(weights_.size() * static_cast<std::size_t>(cache.layers));
    if (needs.attention_sum) {
      sums_.resize(weights_.size());
      sums_of_.resize(weights_of_.size());
    }
  }
}

void Sequence::evict(int coming, Moment moment) {
  const auto start = std::chrono::steady_clock::now();
  if (evictor_.needs().at_decision()) show(coming, moment);
  const Plan& plan = evictor_.plan(*cache_, coming, moment);
  if (!plan.empty()) {
    const bool merges = options_.method.mechanism == Mechanism::kMerge;
    if (merges) cache_->own_all();
    Transaction change = cache_->prepare({.drop = plan.drop});
    if (merges) merge_victims(*cache_, plan, options_.method, evictor_, frequencies_, workers_.get());
    change.commit(workers_.get());
    if (rule_.at_rank) rerotate_moved(*cache_, frequencies_, workers_.get());
    ++times_.evictions;
  }
  times_.evict_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void Sequence::show(int coming, Moment moment) {
  const Needs& needs = evictor_.needs();
  std::vector<std::vector<float>> turns;  // [ropes] what queries to come turn by
  bool any = false;
  for (int t = 0; needs.queries && !any && t < cache_->tables(); ++t) any = evictor_.due(*cache_, t, coming, moment);
  for (std::size_t layer = 0; any && layer < rope_of_.size(); ++layer) {
    turns.resize(std::max(turns.size(), rope_of_[layer] + 1));
    if (turns[rope_of_[layer]].empty()) turns[rope_of_[layer]] = mean_turn(frequencies_[layer], cache_->next());
  }
  const auto show_table = [&](int t) {
    if (!evictor_.due(*cache_, t, coming, moment)) return;
    const int heads = cache_->options().kv_heads, slots = cache_->table(t).slots();
    thread_local std::vector<float> keys, values;
    const auto rows_of = [slots](std::vector<float>& rows, int width) {
      rows.resize(static_cast<std::size_t>(slots) * static_cast<std::size_t>(width));
      return Rows{rows.data(), slots, width, width};
    };
    Rows k, v;
    ExpectedQueries queries;
    if (needs.queries) {
      thread_local std::vector<float> turned;
      const auto layer = static_cast<std::size_t>(t / heads);
      queries = expected_queries(cache_->of_head(t / heads, t % heads), group_, cache_->options().head_dim, scale_,
                                 frequencies_[layer].kind(), turns[rope_of_[layer]], turned);
    }
    if (needs.keys || needs.values) {
      const LayerView view = cache_->view(t / heads);
      const HeadPages& head = view.head[t % heads];
      if (needs.keys) k = rows_of(keys, view.head_dim), read_keys(view, head, keys.data());
      if (needs.values) v = rows_of(values, view.value_dim), read_values(view, head, values.data());
    }
    evictor_.look(*cache_, t, k, v, coming, moment, queries);
  };
  if (workers_ != nullptr)
    workers_->run(cache_->tables(), show_table);
  else
    for (int t = 0; t < cache_->tables(); ++t) show_table(t);
}

void Sequence::read(std::span<const TokenId> prompt, bool all_logits) {
  assert(!prompt.empty());
  stage_ = Stage::kPrompt;
  prompt_ = prompt;
  all_logits_ = all_logits;
  read_ = repeated_ = 0;
}

void Sequence::read(TokenId token) {
  stage_ = Stage::kDecode;
  token_ = token;
  all_logits_ = false;
}

void Sequence::skip(std::size_t tokens) {
  assert(stage_ == Stage::kPrompt && tokens >= read_ && tokens < prompt_.size());
  read_ = tokens;
}

std::size_t Sequence::tokens_left() const {
  switch (stage_) {
    case Stage::kIdle:
      return 0;
    case Stage::kPrompt:
      return prompt_.size() - read_ + (repeats() ? prompt_.size() : 0);
    case Stage::kRepeat:
      return prompt_.size() - repeated_;
    case Stage::kDecode:
      return 1;
  }
  return 0;
}

std::size_t Sequence::tokens_next() const {
  if (stage_ == Stage::kIdle || stage_ == Stage::kDecode) return tokens_left();
  const auto chunk = static_cast<std::size_t>(options_.chunk);
  if (stage_ == Stage::kRepeat) return std::min(options_.repeat.size() + prompt_.size() - repeated_, chunk);
  return options_.method.cache ? std::min(prompt_.size() - read_, chunk) : prompt_.size() - read_;
}

Work Sequence::next() {
  assert(stage_ != Stage::kIdle);
  if (stage_ == Stage::kRepeat) return insert(next_repeated(), true);
  running_ = make_room();
  const auto tokens =
      stage_ == Stage::kDecode ? std::span<const TokenId>(&token_, 1) : prompt_.subspan(read_, running_);
  return insert(tokens, !repeats());
}

std::span<const float> Sequence::done(std::span<const float> logits) {
  if (hearing_failed_.test()) {
    hearing_failed_.clear();
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  switch (stage_) {
    case Stage::kIdle:
      assert(false);
      return {};
    case Stage::kDecode:
      end(1, Moment::kDecode);
      stage_ = Stage::kIdle;
      return logits;
    case Stage::kPrompt: {
      const std::size_t rows = all_logits_ ? running_ : 1;
      const auto mine = logits.last(logits.size() / (all_logits_ ? step_tokens_ : 1) * rows);
      read_ += running_;
      if (read_ < prompt_.size()) {
        end(running_, Moment::kPrompt);
        return all_logits_ ? mine : std::span<const float>();
      }
      end(running_, repeats() ? Moment::kPrompt : Moment::kPromptEnd);
      stage_ = repeats() ? Stage::kRepeat : Stage::kIdle;
      if (all_logits_ || !repeats()) return mine;
      logits_.assign(mine.begin(), mine.end());
      return {};
    }
    case Stage::kRepeat:
      cache_->undo(static_cast<int>(part_.size()));
      evictor_.forget(*cache_);
      if (repeated_ < prompt_.size()) return {};
      end(0, Moment::kPromptEnd);
      stage_ = Stage::kIdle;
      return all_logits_ ? std::span<const float>() : logits_;
  }
  return {};
}

// Drops what is due. How many tokens may go through the model at once now.
std::size_t Sequence::make_room() {
  const Method& m = options_.method;
  const std::size_t wanted = stage_ == Stage::kDecode ? 1 : prompt_.size() - read_;
  if (!m.cache) {
    const std::size_t free = static_cast<std::size_t>(m.budget) - window_.size();
    return all_logits_ ? std::min(wanted, std::max<std::size_t>(1, free)) : wanted;
  }
  std::size_t most = static_cast<std::size_t>(options_.chunk);
  if (m.evicts()) {
    evict(1, moment());
    if (m.windowed() && rule_.window == 0 && (m.schedule == Schedule::kStep || m.schedule == Schedule::kPage)) {
      const int room = evictor_.room(*cache_);
      assert(room >= 1);
      most = std::min(most, static_cast<std::size_t>(room));
    }
  }
  return std::min(wanted, most);
}

// The next part of the prompt, behind the words that ask for it.
std::span<const TokenId> Sequence::next_repeated() {
  const auto chunk = static_cast<std::size_t>(options_.chunk);
  part_ = options_.repeat;
  if (part_.size() >= chunk) part_.clear();
  const auto rest = prompt_.subspan(repeated_);
  const auto part = rest.first(std::min(rest.size(), chunk - part_.size()));
  part_.insert(part_.end(), part.begin(), part.end());
  repeated_ += part.size();
  return part_;
}

// Takes slots. `collect`: the policy hears of weights.
SequenceStep Sequence::insert(std::span<const TokenId> tokens, bool collect) {
  SequenceStep step;
  if (!options_.method.cache) {
    const std::ptrdiff_t budget = options_.method.budget, sinks = options_.method.sinks();
    window_.insert(window_.end(), tokens.begin(), tokens.end());
    if (std::ssize(window_) > budget) window_.erase(window_.begin() + sinks, window_.end() - (budget - sinks));
    cache_->clear();
    tokens = window_;
  }
  step_tokens_ = tokens.size();
  cache_->insert(static_cast<int>(tokens.size()));
  if (options_.memory_limit > 0 && cache_->bytes_in_use() > options_.memory_limit)
    fail("the cache holds {} tokens and reached its limit of {} MiB: give a --budget, or ask for fewer tokens",
         cache_->live(), options_.memory_limit >> 20);
  step.cache = cache_.get();
  step.rule = rule_;
  step.tokens = tokens;
  step.all_logits = all_logits_ && stage_ == Stage::kPrompt;
  const auto make_room = [this](std::vector<std::vector<float>>& rows, std::vector<float*>& of) {
    for (std::size_t t = 0; t < of.size(); ++t) {
      auto& row = rows[t % rows.size()];
      row.resize(std::max(row.size(), weights_wanted(static_cast<int>(t))));
    }
    for (std::size_t t = 0; t < of.size(); ++t) of[t] = rows[t % rows.size()].data();
  };
  make_room(weights_, weights_of_);
  make_room(sums_, sums_of_);
  if (!weights_.empty() && collect) {
    step.received_as = evictor_.needs().received;
    step.weights = weights_of_.data();
    if (!sums_.empty()) step.sums = sums_of_.data();
    if (const int window = evictor_.needs().attention_window; window > 0) step.weights_queries = window;
    step.receiver = this;
  }
  if (evictor_.needs().at_birth) {
    step.births = true;
    step.receiver = this;
  }
  if (evictor_.needs().queries) {
    step.queries = true;
    step.receiver = this;
  }
  return step;
}

std::size_t Sequence::weights_wanted(int table) const {
  const SlotsView& slots =
      *cache_->view(table / cache_->options().kv_heads).head[table % cache_->options().kv_heads].slots;
  return static_cast<std::size_t>(slots.slots + (slots.merged == nullptr ? 0 : slots.merged->places()));
}

template <typename Hear>
void Sequence::guarded(Hear hear) noexcept {
  try {
    hear();
  } catch (...) {
    if (!hearing_failed_.test_and_set()) failure_ = std::current_exception();
  }
}

void Sequence::received(int layer, int kv_head) noexcept {
  guarded([&] {
    const int table = cache_->table_of(layer, kv_head);
    const std::size_t count = weights_wanted(table);
    const auto of = [&](const std::vector<std::vector<float>>& rows) {
      return rows.empty() ? std::span<const float>() : std::span(rows[static_cast<std::size_t>(kv_head)]).first(count);
    };
    evictor_.received(*cache_, table, of(weights_), of(sums_));
  });
}

void Sequence::born(int layer, int kv_head, Rows keys, Rows values) noexcept {
  guarded([&] { evictor_.born(*cache_, cache_->table_of(layer, kv_head), keys, values); });
}

void Sequence::asked(int layer, int query_head, Rows queries) noexcept {
  guarded([&] {
    const auto floats = static_cast<std::size_t>(query_floats(queries.width));
    add_queries(queries, cache_->next() - queries.count,
                cache_->of_head(layer, query_head / group_)
                    .subspan(static_cast<std::size_t>(query_head % group_) * floats, floats));
  });
}

void Sequence::end(std::size_t tokens, Moment moment) {
  const Method& m = options_.method;
  if (m.evicts() && m.cache && (tokens > 1 || moment == Moment::kPromptEnd)) evict(0, moment);
  // What a prompt's chunks took beyond the budget goes back, wherever the survivors are.
  if (m.evicts() && m.cache && moment == Moment::kPromptEnd && cache_->gather_up(0, workers_.get()))
    evictor_.forget(*cache_);
}

void Sequence::go_on_from(Cache& kept) {
  assert(options_.method.cache);
  cache_->share(kept);
  // Nobody has scored these tokens for this method yet: what another's policy gathered is not for it.
  const Needs& needs = evictor_.needs();
  if ((needs.attention_window == 0 || needs.repeat) && !needs.at_birth && cache_->whole())
    for (int t = 0; t < cache_->tables(); ++t) std::ranges::fill(cache_->table(t).score(), 0.0F);
  evictor_.forget(*cache_);
}

void Sequence::save(ByteWriter& out) const {
  out.array(std::span<const TokenId>(window_));
  cache_->save(out);
  evictor_.save(out);
}

bool Sequence::accepts(ByteReader in) const {
  static_cast<void>(in.array<TokenId>());
  return cache_->same_kind(in);
}

void Sequence::load(ByteReader& in) {
  clear();
  const Method& m = options_.method;
  std::vector<TokenId> window = in.array<TokenId>();
  in.require(window.size() <= (m.cache ? 0 : static_cast<std::size_t>(m.budget)), "a window that the method has not");
  cache_->load(in);
  try {
    for (int t = 0; t < cache_->tables(); ++t)
      if (const MergedTokens* const merged = cache_->merged(t); merged != nullptr && !merged->tokens().empty())
        in.require(merged->own_places() == (m.places == Places::kOwn), "merged tokens of another method");
    evictor_.load(in, *cache_);
  } catch (...) {
    clear();
    throw;
  }
  window_ = std::move(window);
}

void Sequence::clear() {
  cache_->clear();
  evictor_.clear(*cache_);
  window_.clear();
  stage_ = Stage::kIdle;
}

}  // namespace palimpsest
