#include "palimpsest/engine/sequence.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <climits>
#include <utility>

#include "palimpsest/attention/read_rows.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/growth.h"
#include "palimpsest/engine/merge.h"
#include "palimpsest/engine/query_statistics.h"
#include "palimpsest/engine/rerotate.h"
#include "palimpsest/graph/attention_path.h"
#include "palimpsest/model/fingerprint.h"

namespace palimpsest {
PlanTarget plan_target(const Hyperparameters& hyper, const SessionOptions& options) {
  PlanTarget target;
  target.shape = cache_shape(hyper);
  target.shape.geometry = target.shape.geometry.with_types(options.cache_type.key, options.cache_type.value);
  target.shape.page_size = options.page_size;
  target.positions = hyper.positions();
  target.trained_context = hyper.trained_context;
  target.memory = options.auto_memory;
  target.chunk = options.chunk;
  target.draft_max = options.draft_max;
  target.vocabulary = hyper.vocabulary;
  target.streaming_head_file = hyper.streaming_head_file;
  return target;
}

PlanTarget plan_target(const Decoder& decoder, const SessionOptions& options) {
  PlanTarget target = plan_target(decoder.model().hyper(), options);
  target.shape.pages = decoder.cache_options().pages;
  target.model = [&model = decoder.model(), method = options.method] { return policy_model(model, method); };
  return target;
}

PolicyModel policy_model(const Model& model, const Method& method) {
  const Hyperparameters& hyper = model.hyper();
  return {.path = model.path(),
          .fingerprint = fingerprint(model),
          .layers = hyper.layers,
          .kv_heads = hyper.geometry.max_kv_heads(),
          .head_dim = hyper.geometry.layer(0).key_width,
          .value_dim = hyper.geometry.layer(0).value_width,
          .heads = hyper.geometry.heads(),
          .scorer = method.scorer};
}

Sequence::Sequence(const Decoder& decoder, const SessionOptions& options, std::shared_ptr<Workers> workers,
                   std::shared_ptr<PagePool> pool)
    : Sequence(decoder, options, std::make_shared<MethodPlan>(options.method, plan_target(decoder, options)),
               std::move(workers), std::move(pool)) {}

Sequence::Sequence(const Decoder& decoder, const SessionOptions& options, std::shared_ptr<const MethodPlan> plan,
                   std::shared_ptr<Workers> workers, std::shared_ptr<PagePool> pool)
    : options_(options), plan_(std::move(plan)), evictor_(*plan_), workers_(std::move(workers)) {
  const Hyperparameters& hyper = decoder.model().hyper();
  options_.method = plan_->method();
  scale_ = hyper.attention_scale;
  const CacheOptions& cache = plan_->cache();
  const Signals& signals = plan_->signals();
  cache_ = std::make_unique<Cache>(cache, std::move(pool));
  evictor_.invalidate(*cache_);
  if (rule().rotated_at_rank || signals.query_moments ||
      (cache.mechanism == Mechanism::kMerge && rule().rotation == Rotation::kOnWrite))
    for (int i = 0; i < hyper.layers; ++i) {
      rope_of_.push_back(static_cast<std::size_t>(hyper.rope_of(i)));
      frequencies_.emplace_back(hyper.rope_table(hyper.rope_of(i)));
    }
  if (options_.keep_weights && !decoder.cache_options().pages)
    fail("attention weights of steps are kept on the CPU path only: use device cpu without `portable`");
  if (options_.keep_weights) kept_weights_.resize(at(cache.geometry.heads()));
  if (signals.weights() || options_.keep_weights) {
    weights_.resize(static_cast<std::size_t>(cache.geometry.max_kv_heads()));
    weights_of_.resize(static_cast<std::size_t>(cache.geometry.heads()));
    if (signals.sums()) {
      sums_.resize(weights_.size());
      sums_of_.resize(weights_of_.size());
    }
  }
}

void Sequence::evict(int coming, Phase phase) {
  const auto start = std::chrono::steady_clock::now();
  // Tokens outside a layer's window are dropped first: the policy need not score them.
  if (!plan_->windows().empty()) drop(evictor_.unseen(*cache_, coming, phase), true);
  if (plan_->signals().at_decision()) score_tables(coming, phase);
  if (drop(evictor_.plan(*cache_, coming, phase), false)) ++times_.evictions;
  times_.evict_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Returns false if the plan is empty. `unseen`: no later query sees the tokens, so they are not merged.
bool Sequence::drop(const Plan& plan, bool unseen) {
  if (plan.empty()) return false;
  const bool merges = options_.method.mechanism == Mechanism::kMerge;
  if (merges) cache_->make_exclusive();
  Transaction change = cache_->prepare({.drop = plan.drop, .unseen = unseen});
  if (memory_log_ != nullptr) memory_log_->begin_drop(*cache_, plan);
  if (merges && unseen) drop_merged(*cache_, plan);
  if (merges && !unseen)
    merge_victims(*cache_, plan, options_.method, evictor_, frequencies_, workers_.get(), interrupt_.get());
  change.commit(workers_.get());
  if (memory_log_ != nullptr) memory_log_->end_drop(*cache_);
  if (rule().rotated_at_rank) rerotate_moved(*cache_, frequencies_, workers_.get());
  return true;
}

void Sequence::set_memory_log(std::shared_ptr<MemoryLog> log) {
  memory_log_ = std::move(log);
  restart_memory_log();
}

void Sequence::restart_memory_log() {
  if (memory_log_ != nullptr) memory_log_->restart(*cache_);
}

void Sequence::score_tables(int coming, Phase phase) {
  const Signals& signals = plan_->signals();
  bool any = false;  // most steps evict nothing: the workers are not woken for them
  for (int t = 0; !any && t < cache_->tables(); ++t) any = evictor_.needs_eviction(*cache_, t, coming, phase);
  if (!any) return;
  std::vector<std::vector<float>> rotations;  // [RoPE tables] mean rotation of the next queries
  for (std::size_t layer = 0; signals.query_moments && layer < rope_of_.size(); ++layer) {
    rotations.resize(std::max(rotations.size(), rope_of_[layer] + 1));
    if (rotations[rope_of_[layer]].empty())
      rotations[rope_of_[layer]] = mean_rotation(frequencies_[layer], cache_->next());
  }
  const auto score_table = [&](int t) {
    if (!evictor_.needs_eviction(*cache_, t, coming, phase)) return;
    if (interrupt_ != nullptr) interrupt_->check();
    const HeadGeometry& geometry = cache_->geometry();  // a table is a head
    const int layer = geometry.layer_of(t), slots = cache_->table(t).slots();
    thread_local std::vector<float> keys, values;
    const auto rows_of = [slots](std::vector<float>& rows, int width) {
      rows.resize(static_cast<std::size_t>(slots) * static_cast<std::size_t>(width));
      return Rows{rows.data(), slots, width, width};
    };
    Rows k, v;
    ExpectedQueries queries;
    if (signals.query_moments) {
      thread_local std::vector<float> rotated;
      const LayerGeometry& g = geometry.layer(layer);
      const auto at = static_cast<std::size_t>(layer);
      queries = expected_queries(query_statistics(t), g.group(), g.key_width, scale_, frequencies_[at].kind(),
                                 rotations[rope_of_[at]], rotated);
    }
    if ((signals.keys || signals.values) && evictor_.reads_rows(*cache_, t)) {
      const LayerView view = cache_->view(layer);
      const HeadPages& head = cache_->head(t);
      if (signals.keys) k = rows_of(keys, view.head_dim), read_keys(view, head, keys.data());
      if (signals.values) v = rows_of(values, view.value_dim), read_values(view, head, values.data());
    }
    evictor_.score_table(*cache_, t, k, v, coming, phase, queries, interrupt_.get());
  };
  if (workers_ != nullptr)
    workers_->run(cache_->tables(), score_table);
  else
    for (int t = 0; t < cache_->tables(); ++t) score_table(t);
}

void Sequence::read(std::span<const TokenId> prompt, bool all_logits, StepResult result) {
  assert(!prompt.empty());
  accept(0);
  continues_ = continues_ || (stage_ == Stage::kPrompt && read_ > 0);
  stage_ = Stage::kPrompt;
  prompt_ = prompt;
  all_logits_ = all_logits;
  result_ = result;
  read_ = repeated_ = 0;
}

void Sequence::read(TokenId token, std::span<const TokenId> drafts) {
  accept(0);
  stage_ = Stage::kDecode;
  tokens_.assign(1, token);
  const auto some = drafts.first(std::min(drafts.size(), at(plan_->draft_max())));
  tokens_.insert(tokens_.end(), some.begin(), some.end());
  all_logits_ = tokens_.size() > 1;
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
      return tokens_.size();
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
  if (stage_ == Stage::kRepeat) return insert(next_repeated());
  // A window that decode does not update begins with the prompt.
  const bool begins = stage_ == Stage::kPrompt && read_ == 0 && !std::exchange(continues_, false);
  if (begins && !plan_->signals(Phase::kDecode).attention_window) evictor_.invalidate_window(*cache_);
  running_ = make_room();
  return insert(stage_ == Stage::kDecode ? std::span<const TokenId>(tokens_).first(running_)
                                         : prompt_.subspan(read_, running_));
}

std::span<const float> Sequence::done(std::span<const float> logits) {
  if (report_failed_.test()) {
    report_failed_.clear();
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  switch (stage_) {
    case Stage::kIdle:
      assert(false);
      return {};
    case Stage::kDecode:
      if (drafts_ == 0) end(1, Phase::kDecode);
      stage_ = Stage::kIdle;
      return logits;
    case Stage::kPrompt: {
      const std::size_t rows = all_logits_ ? running_ : 1;
      const auto mine = logits.last(logits.size() / (all_logits_ ? step_tokens_ : 1) * rows);
      read_ += running_;
      if (read_ < prompt_.size()) {
        end(running_, Phase::kPrefill);
        return all_logits_ ? mine : std::span<const float>();
      }
      end(running_, repeats() ? Phase::kPrefill : Phase::kPrefillEnd);
      stage_ = repeats() ? Stage::kRepeat : Stage::kIdle;
      if (all_logits_ || !repeats()) return mine;
      logits_.assign(mine.begin(), mine.end());
      return {};
    }
    case Stage::kRepeat:
      cache_->undo(static_cast<int>(part_.size()));
      evictor_.invalidate(*cache_);
      if (repeated_ < prompt_.size()) return {};
      end(0, Phase::kPrefillEnd);
      stage_ = Stage::kIdle;
      return all_logits_ ? std::span<const float>() : logits_;
  }
  return {};
}

// Evicts before a step. Returns how many tokens the step may read.
std::size_t Sequence::make_room() {
  const Method& m = options_.method;
  const std::size_t wanted = stage_ == Stage::kDecode ? tokens_.size() : prompt_.size() - read_;
  if (!m.cache) {
    const std::size_t free = static_cast<std::size_t>(m.budget) - window_.size();
    return all_logits_ ? std::min(wanted, std::max<std::size_t>(1, free)) : wanted;
  }
  std::size_t max = static_cast<std::size_t>(options_.chunk);
  const bool writing = stage_ == Stage::kDecode;
  if (plan_->drops() && !(writing && m.evict_after)) evict(1, phase());
  const bool limited = writing ? wanted > 1 && m.schedule != Schedule::kPrompt
                               : m.windowed() && (m.schedule == Schedule::kStep || m.schedule == Schedule::kPage);
  if (m.evicts() && limited && rule().window == 0) {
    const int room = evictor_.room(*cache_);
    assert(room >= 1);
    max = std::min(max, static_cast<std::size_t>(room));
  }
  if (writing && wanted > 1) {
    max = std::min(max, at(evictor_.room_for_unseen(*cache_)));
    // No page is mapped for drafts alone, so that a step has the slots that it has without drafts.
    for (int t = 0; t < cache_->tables(); ++t) {
      const int free = cache_->table(t).free_slots();
      max = std::min(max, at(free == 0 ? options_.page_size : free));
    }
  }
  return std::min(wanted, max);
}

// The next part of the prompt, after the instruction to repeat it.
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

// Takes slots, and requests the signals of this phase.
SequenceStep Sequence::insert(std::span<const TokenId> tokens) {
  SequenceStep step;
  drafts_ = stage_ == Stage::kDecode ? static_cast<int>(tokens.size()) - 1 : 0;
  if (!options_.method.cache) {
    const std::ptrdiff_t budget = options_.method.budget, sinks = options_.method.sinks();
    window_.insert(window_.end(), tokens.begin(), tokens.end());
    if (std::ssize(window_) > budget) window_.erase(window_.begin() + sinks, window_.end() - (budget - sinks));
    cache_->clear();
    tokens = window_;
  }
  step_tokens_ = tokens.size();
  cache_->prepare({.insert = static_cast<int>(tokens.size()), .tentative = drafts_ > 0}).commit();
  if (options_.memory_limit > 0 && cache_->bytes_in_use() > options_.memory_limit)
    fail("the cache holds {} tokens and reached its limit of {} MiB: give a --budget, or ask for fewer tokens",
         cache_->occupied(), options_.memory_limit >> 20);
  step.cache = cache_.get();
  step.rule = rule();
  step.tokens = tokens;
  step.all_logits = drafts_ > 0 || (all_logits_ && stage_ == Stage::kPrompt);
  if (stage_ == Stage::kPrompt) step.result = result_;
  step.drafts = drafts_ > 0;
  request_signals(step);
  return step;
}

// What the policy asks for in this phase.
void Sequence::request_signals(SequenceStep& step) {
  const Signals signals = plan_->signals(phase());
  for (KeptWeights& each : kept_weights_) each.position.clear(), each.weight.clear();
  const bool keeps = options_.keep_weights && stage_ == Stage::kDecode && drafts_ == 0;
  const auto decides = [&](std::size_t head) {
    return !signals.weights() || evictor_.decides(cache_->table_of(static_cast<int>(head)));
  };
  int stride = 0;
  const auto make_room = [&](std::vector<std::vector<float>>& rows, std::vector<float*>& of, std::size_t count) {
    const auto row_of = [&](std::size_t head) -> auto& {
      return rows[at(cache_->geometry().kv_head_of(static_cast<int>(head)))];
    };
    for (std::size_t head = 0; head < of.size(); ++head) {
      if (!decides(head)) continue;
      auto& row = row_of(head);
      const std::size_t wanted = std::max(row.size(), count * at(stride));
      reserve_for(row, wanted);
      row.resize(wanted);
    }
    for (std::size_t head = 0; head < of.size(); ++head) of[head] = decides(head) ? row_of(head).data() : nullptr;
  };
  if (keeps || signals.weights() || signals.reads_inserted() || signals.query_moments) step.receiver = this;
  step.report_kv = signals.reads_inserted();
  step.report_queries = signals.query_moments.has_value();
  step.weight_reduction = signals.reduction();
  if (drafts_ > 0) {
    std::vector<bool> heads(at(cache_->geometry().heads()));
    for (std::size_t head = 0; head < heads.size(); ++head) heads[head] = signals.weights() && decides(head);
    held_.begin(*cache_, drafts_ + 1, heads);
    if (signals.weights()) step.weights = held_.weights(), step.weights_stride = held_.weights_stride();
  } else if (keeps || signals.weights()) {
    for (std::size_t head = 0; head < weights_of_.size(); ++head)
      if (decides(head)) stride = std::max(stride, static_cast<int>(max_weights(static_cast<int>(head))));
    if (signals.attention_window) {
      const std::size_t left = prompt_.size() - read_ - running_;
      evictor_.count_queries(static_cast<int>(step.tokens.size()),
                             stage_ == Stage::kPrompt ? static_cast<long long>(left) : -1);
      step.weights_rows = evictor_.window().rows();
      step.weights_queries = evictor_.window().queries();
    }
    make_room(weights_, weights_of_, std::max<std::size_t>(1, step.weights_rows.size()));
    make_room(sums_, sums_of_, 1);
    step.weights = weights_of_.data();
    if (!sums_.empty()) step.sums = sums_of_.data();
    step.weights_stride = weights_stride_ = stride;
  }
}

void Sequence::accept(int drafts) {
  assert(drafts >= 0 && drafts <= drafts_);
  const int all = std::exchange(drafts_, 0);
  if (all == 0) return;
  cache_->undo(all);
  if (stage_ == Stage::kDecode) return;  // the step failed: what it reported is not complete
  report_held(0);
  // Where an eviction moves tokens (of sinks + window, which has no statistics), the next step evicts for all.
  const Mechanism mechanism = options_.method.mechanism;
  const bool moves =
      mechanism == Mechanism::kShift || mechanism == Mechanism::kGather || mechanism == Mechanism::kBlock;
  for (int i = 1; i <= drafts; ++i) {
    if (plan_->drops() && !moves) evict(1, Phase::kDecode);
    cache_->insert(1);
    report_held(i);
  }
  if (options_.method.evict_after) evict(0, Phase::kDecode);
}

// Token `index` of a step with drafts: the newest one now.
void Sequence::report_held(int index) {
  const Signals signals = plan_->signals(Phase::kDecode);
  if (signals.attention_window) evictor_.count_queries(1, -1);
  for (int head = 0; head < cache_->geometry().heads(); ++head) {
    const int table = cache_->table_of(head);
    if (!evictor_.decides(table)) continue;
    if (signals.weights()) {
      const auto weights = held_.weights(*cache_, head, index);
      const int count = static_cast<int>(weights.size());
      evictor_.on_weights(*cache_, table, {weights.data(), 1, count, count},
                          signals.sums() ? weights : std::span<const float>());
    }
    if (signals.reads_inserted())
      evictor_.on_insert_kv(*cache_, table, held_.key(head, index), held_.value(head, index));
    for (int member = 0; signals.query_moments && member < cache_->geometry().layer_geometry(head).group(); ++member)
      add_queries(head, member, held_.query(head, member, index));
  }
}

std::size_t Sequence::weights_count(int head) const {
  const SlotsView& slots = *cache_->head(head).slots;
  return static_cast<std::size_t>(slots.slots + (slots.merged == nullptr ? 0 : slots.merged->entries()));
}

std::size_t Sequence::max_weights(int head) const {
  const SlotsView& slots = *cache_->head(head).slots;
  return static_cast<std::size_t>(slots.slots + (slots.merged == nullptr ? 0 : slots.merged->max_entries()));
}

template <typename Report>
void Sequence::guarded(Report report) noexcept {
  try {
    report();
  } catch (...) {
    if (!report_failed_.test_and_set()) failure_ = std::current_exception();
  }
}

void Sequence::on_weights(int head) noexcept {
  if (drafts_ > 0) return;  // held until accept()
  guarded([&] {
    const std::size_t count = weights_count(head), kv_head = at(cache_->geometry().kv_head_of(head));
    const bool policy = !options_.keep_weights || plan_->signals(phase()).weights();
    const int rows =
        policy && evictor_.signals().attention_window ? static_cast<int>(evictor_.window().rows().size()) : 1;
    const Rows weights{weights_[kv_head].data(), rows, static_cast<int>(count), weights_stride_};
    if (options_.keep_weights && stage_ == Stage::kDecode) keep_weights(head, weights);
    if (policy)
      evictor_.on_weights(*cache_, cache_->table_of(head), weights,
                          sums_.empty() ? std::span<const float>() : std::span(sums_[kv_head]).first(count));
  });
}

void Sequence::keep_weights(int head, const Rows& rows) {
  KeptWeights& kept = kept_weights_[at(head)];
  const PositionView positions = cache_->table(cache_->table_of(head)).position();
  kept.position.assign(positions.begin(), positions.end());
  kept.weight.assign(positions.size(), 0);  // without those of merged tokens, which follow
  for (int row = 0; row < rows.count; ++row)
    for (std::size_t slot = 0; slot < kept.weight.size(); ++slot) kept.weight[slot] += rows[row][slot];
}

void Sequence::on_insert_kv(int head, Rows keys, Rows values) noexcept {
  guarded([&] {
    if (drafts_ > 0)
      held_.hold_kv(head, keys, values);
    else
      evictor_.on_insert_kv(*cache_, cache_->table_of(head), keys, values);
  });
}

// Sized by the head's own query group, which may be smaller than another layer's.
std::span<float> Sequence::query_statistics(int head) {
  const LayerGeometry& g = cache_->geometry().layer_geometry(head);
  return cache_->head_statistics(head).first(static_cast<std::size_t>(g.group() * query_floats(g.key_width)));
}

void Sequence::add_queries(int head, int member, Rows queries) {
  const auto floats = static_cast<std::size_t>(query_floats(queries.width));
  palimpsest::add_queries(queries, cache_->next() - queries.count,
                          query_statistics(head).subspan(static_cast<std::size_t>(member) * floats, floats));
}

void Sequence::on_queries(int head, int member, Rows queries) noexcept {
  if (!evictor_.decides(cache_->table_of(head))) return;
  guarded([&] {
    if (drafts_ > 0)
      held_.hold_queries(head, member, queries);
    else
      add_queries(head, member, queries);
  });
}

void Sequence::end(std::size_t tokens, Phase phase) {
  if (plan_->drops() && (tokens > 1 || phase == Phase::kPrefillEnd || options_.method.evict_after)) evict(0, phase);
  // Frees the pages that the prompt's chunks used beyond the budget.
  if (plan_->drops() && phase == Phase::kPrefillEnd && cache_->defragment(0, workers_.get()))
    evictor_.invalidate(*cache_);
}

void Sequence::continue_from(Cache& kept) {
  assert(options_.method.cache);
  cache_->share(kept);
  evictor_.continue_window(kept.next(), options_.chunk);
  continues_ = true;
  // Scores of another method's policy are not valid for this one.
  const Signals& signals = plan_->signals();
  if ((!signals.weights() || signals.repeat) && !signals.score_on_insert && cache_->compatible_with(cache_->options()))
    for (int t = 0; t < cache_->tables(); ++t) std::ranges::fill(cache_->table(t).score(), 0.0F);
  evictor_.invalidate(*cache_);
  restart_memory_log();
}

void Sequence::continue_from(Cache& kept, std::span<const std::byte> state, bool in_prompt) {
  assert(options_.method.cache);
  cache_->share(kept);
  evictor_.invalidate(*cache_);
  continues_ = in_prompt;
  ByteReader in(state, "a kept cache is damaged");
  evictor_.load(in, *cache_);
  restart_memory_log();
}

std::vector<std::byte> Sequence::state() const {
  std::vector<std::byte> bytes;
  ByteWriter out([&](std::span<const std::byte> data) { bytes.insert(bytes.end(), data.begin(), data.end()); });
  evictor_.save(out);
  return bytes;
}

void Sequence::rewind(Position position) {
  accept(0);
  const Position next = cache_->next();
  if (position < 0 || position > next) fail("position {} is not in the text of {} tokens", position, next);
  if (!options_.method.cache) fail("method {} has no cache to rewind: clear it", options_.method.name);
  if (position == next) return;
  cache_->drop(position, kEndOfText);
  if (memory_log_ != nullptr) memory_log_->rewind(position);
  evictor_.invalidate(*cache_);
  stage_ = Stage::kIdle;
}

void Sequence::save(ByteWriter& out) const {
  assert(drafts_ == 0);
  out.array(std::span<const TokenId>(window_));
  cache_->save(out);
  evictor_.save(out);
}

std::string Sequence::mismatch(const MethodPlan& plan, ByteReader in) {
  static_cast<void>(in.array<TokenId>());
  return Cache::mismatch(plan.cache(), in);
}

void Sequence::load(ByteReader& in) {
  try {
    load_tables(in);
    take_pages(INT_MAX);
    load_pages(in);
  } catch (...) {
    clear();
    throw;
  }
}

void Sequence::load_tables(ByteReader& in) {
  clear();
  const Method& m = options_.method;
  window_ = in.array<TokenId>();
  in.require(window_.size() <= (m.cache ? 0 : static_cast<std::size_t>(m.budget)), "a window that the method has not");
  cache_->load_tables(in);
  for (int t = 0; t < cache_->tables(); ++t)
    if (const MergedTokens* const merged = cache_->merged(t); merged != nullptr && !merged->tokens().empty())
      in.require(merged->own_positions() == (m.merge_position == MergePosition::kOwn),
                 "merged tokens of another method");
}

void Sequence::load_pages(ByteReader& in) {
  cache_->load_pages(in);
  evictor_.load(in, *cache_);
  restart_memory_log();
}

void Sequence::clear() {
  cache_->clear();
  evictor_.clear(*cache_);
  window_.clear();
  stage_ = Stage::kIdle;
  continues_ = false;
  drafts_ = 0;
  restart_memory_log();
}

}  // namespace palimpsest
