#include "palimpsest/engine/sequence/sequence.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

bool keeps_weights(const Decoder& decoder, const SessionOptions& options) {
  if (options.keep_weights && !decoder.cache_options().pages)
    fail("attention weights of steps are kept on the CPU path only: use device cpu without `portable`");
  return options.keep_weights;
}

}  // namespace

Sequence::Sequence(const Decoder& decoder, const SessionOptions& options, std::shared_ptr<Workers> workers,
                   std::shared_ptr<PagePool> pool)
    : Sequence(decoder, options, std::make_shared<MethodPlan>(options.method, plan_target(decoder, options)),
               std::move(workers), std::move(pool)) {}

Sequence::Sequence(const Decoder& decoder, const SessionOptions& options, std::shared_ptr<const MethodPlan> plan,
                   std::shared_ptr<Workers> workers, std::shared_ptr<PagePool> pool)
    : options_(options),
      plan_(std::move(plan)),
      evictor_(*plan_),
      cache_(std::make_unique<Cache>(plan_->cache(), std::move(pool))),
      evictions_(decoder.model().hyper(), *plan_, *cache_, evictor_, std::move(workers)),
      preview_(*plan_, *cache_, evictor_),
      collector_(*plan_, *cache_, evictor_, preview_, keeps_weights(decoder, options)),
      passes_(plan_->cache().geometry, decoder.model().hyper().width, plan_->target().layerwise),
      window_(plan_->method()) {
  options_.method = plan_->method();
  if (!cache_->options().pages) decoder.attach_storage(*cache_, plan_->rule());
  evictor_.invalidate(*cache_);
  const Method& method = plan_->method();
  if (method.recall == 0) return;
  recall_ = std::make_unique<RecallTier>(plan_->cache().geometry, method.recall_type, method.recall_max,
                                         method.kept_choice());
  evictions_.set_recall_tier(recall_.get());
}

void Sequence::copy_recall(const Sequence& other) {
  if (other.recall_ == nullptr) return;
  recall_ = std::make_unique<RecallTier>(*other.recall_);
  evictions_.set_recall_tier(recall_.get());
}

void Sequence::read(std::span<const TokenId> prompt, bool all_logits, StepResult result) {
  assert(!prompt.empty());
  check_whole();
  accept(0);
  continues_ = continues_ || (stage_ == Stage::kPrompt && read_ > 0);
  stage_ = Stage::kPrompt;
  prompt_ = prompt;
  all_logits_ = all_logits;
  result_ = result;
  read_ = repeated_ = 0;
  at_ = kNoPosition;
}

void Sequence::read(TokenId token, std::span<const TokenId> drafts) {
  check_whole();
  accept(0);
  stage_ = Stage::kDecode;
  at_ = kNoPosition;
  tokens_.assign(1, token);
  const auto usable = drafts.first(std::min(drafts.size(), at(plan_->draft_max())));
  tokens_.insert(tokens_.end(), usable.begin(), usable.end());
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
      return prompt_.size() - tokens_read() + (repeats() ? prompt_.size() : 0);
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

SequenceStep Sequence::next() {
  assert(stage_ != Stage::kIdle);
  if (stage_ == Stage::kRepeat) return next_repeated();
  return options_.method.cache ? next_prompt_or_token() : next_recomputed();
}

// One change: drops what leaves, and takes slots for the tokens that come. Nothing changes if it fails.
SequenceStep Sequence::next_prompt_or_token() {
  const Method& m = options_.method;
  const bool decode = stage_ == Stage::kDecode;
  const bool begins = !decode && read_ == 0 && passes_.first();
  // A window that decode does not update begins with the prompt.
  if (begins && !continues_ && !plan_->signals(Phase::kDecode).attention_window)
    evictor_.scorer().invalidate_window(*cache_);
  if (begins) passes_.begin(prompt_.size(), evictor_.scorer().window());
  if (begins) expect(cache_->next() + static_cast<Position>(prompt_.size()));
  if (!decode || !evictor_.knows_next_victims()) fetch_scores();
  if (plan_->drops() && !(decode && m.evict_after)) evictions_.decide(1, phase(), tables());
  std::size_t count = step_size();
  previewed_ = decode && count > 1 && plan_->previews_drafts();
  evictions_.commit(previewed_ ? 1 : static_cast<int>(count), at_, tables());
  if (previewed_) {
    count = 1 + at(preview(count - 1));
    previewed_ = count > 1;
  }
  if (!decode && read_ == 0) continues_ = false;
  running_ = count;
  return step_of(decode ? std::span<const TokenId>(tokens_).first(count) : prompt_.subspan(read_, count));
}

// The slots while a prompt is read that ends the text at `text`.
void Sequence::expect(Position text) {
  expected_slots_ = 0;
  if (cache_->options().pages) return;  // not on a device
  for (const Occupancy& each : plan_->occupancies(text, text, cache_->next() > 0).prefill)
    expected_slots_ = std::max(expected_slots_, static_cast<int>(std::min<long long>(each.slots, INT32_MAX / 2)));
}

// How many of so many drafts the step reads. The first token has its slot: without memory for drafts there are none.
int Sequence::preview(std::size_t drafts) {
  try {
    draft_rows_.begin(*cache_, static_cast<int>(drafts));
    return preview_.begin(static_cast<int>(drafts));
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

std::size_t Sequence::step_size() const {
  const Method& m = options_.method;
  const bool decode = stage_ == Stage::kDecode;
  const std::size_t wanted = decode ? tokens_.size() : prompt_.size() - read_;
  const bool drafts = decode && wanted > 1;
  std::size_t max = at(options_.chunk);
  const bool limited = decode ? drafts && m.schedule != Schedule::kPrompt
                              : m.windowed() && (m.schedule == Schedule::kStep || m.schedule == Schedule::kPage);
  const bool each = decode ? plan_->previews_victims() : rule().has_window();
  if (m.evicts() && limited && !each) max = std::min(max, at(evictions_.room()));
  if (drafts && !plan_->previews_drafts()) max = std::min(max, at(evictions_.room_for_drafts()));
  // The ranks of all keys change there, and drafts have those of their step's first token.
  const Position originals = cache_->options().original_until - cache_->next();
  if (drafts && originals > 0) max = std::min(max, static_cast<std::size_t>(originals));
  assert(max >= 1);
  return std::min(wanted, max);
}

// The next part of the prompt, after the instruction to repeat it.
SequenceStep Sequence::next_repeated() {
  const auto chunk = at(options_.chunk);
  part_ = options_.repeat;
  if (part_.size() >= chunk) part_.clear();
  const auto rest = prompt_.subspan(repeated_);
  const auto part = rest.first(std::min(rest.size(), chunk - part_.size()));
  part_.insert(part_.end(), part.begin(), part.end());
  evictions_.commit(static_cast<int>(part_.size()));
  repeated_ += part.size();
  return step_of(part_);
}

SequenceStep Sequence::next_recomputed() {
  const std::size_t wanted = stage_ == Stage::kDecode ? tokens_.size() : prompt_.size() - read_;
  const std::size_t count = all_logits_ ? std::min(wanted, std::max<std::size_t>(1, window_.free())) : wanted;
  const auto tokens = window_.with(stage_ == Stage::kDecode ? std::span<const TokenId>(tokens_).first(count)
                                                            : prompt_.subspan(read_, count));
  cache_->clear();
  evictions_.commit(static_cast<int>(tokens.size()));
  window_.keep();
  running_ = count;
  return step_of(tokens);
}

// The step that reads these tokens, which have their slots.
SequenceStep Sequence::step_of(std::span<const TokenId> tokens) {
  if (options_.memory_limit > 0 && cache_->bytes_in_use() > options_.memory_limit)
    fail("the cache holds {} tokens and reached its limit of {} MiB: give a --budget, or ask for fewer tokens",
         cache_->occupied(), options_.memory_limit >> 20);
  drafts_ = stage_ == Stage::kDecode && options_.method.cache ? static_cast<int>(tokens.size()) - 1 : 0;
  step_tokens_ = tokens.size();
  SequenceStep step;
  step.cache = cache_.get();
  step.rule = rule();
  step.tokens = tokens;
  step.all_logits = drafts_ > 0 || (all_logits_ && stage_ == Stage::kPrompt);
  if (stage_ == Stage::kPrompt) {
    step.result = result_;
    step.expected_slots = expected_slots_;
    step.layers = passes_.layers();
    step.hidden = passes_.input(read_, tokens.size());
    step.all_logits = step.all_logits || !passes_.last();
  }
  step.recall = recall_.get();
  step.recall_pages = plan_->method().recall;
  step.recall_chooses = tokens.size() > 1 || cache_->next() % plan_->method().recall_every == 0;
  step.request.drafts = drafts_ > 0;
  if (previewed_) step.request.draft_rows = draft_rows_.rows();
  const std::size_t left = prompt_.size() - read_ - running_;
  collector_.begin(step, phase(), stage_ == Stage::kPrompt ? static_cast<long long>(left) : -1);
  return step;
}

std::span<const float> Sequence::done(std::span<const float> logits) {
  collector_.check();
  switch (stage_) {
    case Stage::kIdle:
      assert(false);
      return {};
    case Stage::kDecode:
      if (drafts_ == 0) end(1, Phase::kDecode);
      stage_ = Stage::kIdle;
      return logits;
    case Stage::kPrompt: {
      if (!passes_.last()) {
        passes_.keep(read_, logits);
        read_ += running_;
        end(running_, read_ < prompt_.size() ? Phase::kPrefill : Phase::kPrefillEnd);
        if (read_ == prompt_.size()) end_of_pass();
        return {};
      }
      const std::size_t rows = all_logits_ ? running_ : 1;
      const auto mine = logits.last(logits.size() / (all_logits_ ? step_tokens_ : 1) * rows);
      read_ += running_;
      if (at_ != kNoPosition) at_ = read_ < prompt_.size() ? at_ + static_cast<Position>(running_) : kNoPosition;
      if (read_ < prompt_.size()) {
        end(running_, Phase::kPrefill);
        return all_logits_ ? mine : std::span<const float>();
      }
      end(running_, repeats() ? Phase::kPrefill : Phase::kPrefillEnd);
      stage_ = repeats() ? Stage::kRepeat : Stage::kIdle;
      passes_.end();
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

void Sequence::accept(int drafts) {
  assert(drafts >= 0 && drafts <= drafts_);
  const int all = std::exchange(drafts_, 0);
  if (all == 0) return;
  if (!previewed_) cache_->undo(all);
  if (stage_ == Stage::kDecode) return;  // the step failed: what it reported is not complete
  cache_->state().accept(drafts);
  collector_.replay(0);
  for (int i = 1; i <= drafts; ++i) {
    end(1, Phase::kDecode);
    if (plan_->drops() && !options_.method.evict_after) evictions_.decide(1, Phase::kDecode);
    evictions_.commit(1);
    assert(!previewed_ || preview_.holds(i));
    if (previewed_) draft_rows_.store(*cache_, i - 1);
    collector_.replay(i);
  }
  end(1, Phase::kDecode);
}

void Sequence::end(std::size_t tokens, Phase phase) {
  if (!plan_->drops()) return;
  if (tokens > 1 || phase == Phase::kPrefillEnd || options_.method.evict_after) evictions_.evict(0, phase, tables());
  if (phase != Phase::kPrefillEnd) return;
  // Frees the pages that the prompt's chunks used beyond the budget.
  evictions_.defragment(tables());
  if (passes_.several()) evictions_.shrink(tables());
}

// The next layers meet the same tokens.
void Sequence::end_of_pass() {
  passes_.next();
  evictor_.scorer().set_window(passes_.window());
  read_ = 0;
}

void Sequence::check_whole() const {
  if (stage_ == Stage::kPrompt && passes_.several() &&
      (!passes_.first() || cache_->table(0).next() != cache_->table(cache_->tables() - 1).next()))
    fail(
        "a prompt that is read layer by layer was stopped before its end, so layers hold different tokens: clear the "
        "session");
}

void Sequence::rewind(Position position) {
  check_whole();
  accept(0);
  const Position next = cache_->next();
  if (position < 0 || position > next) fail("position {} is not in the text of {} tokens", position, next);
  if (!options_.method.cache) fail("method {} has no cache to rewind: clear it", options_.method.name);
  if (position == next) return;
  fetch_scores();
  cache_->drop(position, kEndOfText);
  if (recall_ != nullptr) recall_->forget(position);
  evictions_.rewind_memory_log(position);
  evictor_.invalidate(*cache_);
  stage_ = Stage::kIdle;
}

void Sequence::clear() {
  cache_->clear();
  evictor_.clear(*cache_);
  if (recall_ != nullptr) recall_->clear();
  window_.clear();
  passes_.end();
  stage_ = Stage::kIdle;
  continues_ = false;
  drafts_ = 0;
  evictions_.restart_memory_log();
}

}  // namespace palimpsest
