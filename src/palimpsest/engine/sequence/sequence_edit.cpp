// Edits of a sequence's text: what is refused, and what of the cache is as if the edited text had been read.
#include <algorithm>
#include <climits>
#include <optional>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/sequence.h"

namespace palimpsest {
namespace {

bool holds_any(const Cache& cache, PositionRange range) {
  for (int t = 0; t < cache.tables(); ++t)
    if (cache.table(t).occupied(range)) return true;
  return false;
}

// Every head still has each of the first `end` tokens.
bool holds_all(const Cache& cache, Position end) {
  for (int t = 0; t < cache.tables(); ++t) {
    const auto position = cache.table(t).position();
    const auto held = std::ranges::count_if(position, [&](Position p) { return p != kNoPosition && p < end; });
    if (held != end) return false;
  }
  return true;
}

// The window of a table that has dropped tokens of a text of `tokens`, or of none.
std::optional<std::int32_t> full_window(const Cache& cache, Position tokens) {
  for (int t = 0; t < cache.tables(); ++t)
    if (cache.window(t) != INT32_MAX && tokens >= cache.window(t)) return cache.window(t);
  return std::nullopt;
}

// What the policy knows of a token was known when it was read.
bool forgets_nothing(const Method& method, const Signals& signals) {
  return !signals.weights() && !signals.queries() && !signals.repeat && !method.budgets_change() &&
         method.max_drop == 0;
}

}  // namespace

void Sequence::check_edit(PositionRange range) const {
  check_whole();
  const Position next = cache_->next();
  if (!options_.method.cache) fail("method {} has no cache to edit: read the edited text", options_.method.name);
  if (recall_ != nullptr) fail("recall: evicted tokens cannot be edited; read the edited text, or leave recall out");
  if (range.first < 0 || range.last < range.first)
    fail("the range {}:{} is out of order: give A:B with 0 <= A <= B, the tokens A to B - 1", range.first, range.last);
  if (range.last > next)
    fail("the range {}:{} is beyond the end of the text: {} tokens were read", range.first, range.last, next);
}

// Whether tokens can be dropped at `range` and those behind moved by `by`.
void Sequence::check_move(PositionRange range, Position by, const Hyperparameters& hyper, Pins of) const {
  const Method& m = options_.method;
  if (rule().rotated_at_rank)
    fail("rerotate=delta: stored keys are rotated by their ranks, which an edit changes: use rerotate=fused");
  if (by != 0 && hyper.learned_positions > 0)
    fail("this model adds learned positions to its tokens: those behind an edit cannot move by {}; use mode exact", by);
  if (rule().two_query && range.first < rule().sinks && cache_->occupied() < cache_->next())
    fail("the first {} tokens are sinks, which keep their positions: edit behind them, or use mode exact",
         rule().sinks);
  const auto& pins = m.protection.pins;
  if (of == Pins::kAsItIs && by != 0 && !pins.empty() && pins.back().last > range.first)
    fail("the edit would move pinned tokens (positions up to {}): pin less, or use mode exact", pins.back().last);
}

void Sequence::edit(PositionRange range, std::span<const TokenId> tokens, const Hyperparameters& hyper, Pins pins) {
  accept(0);
  check_edit(range);
  const Position next = cache_->next(), by = std::ssize(tokens) - (range.last - range.first);
  const bool middle = range.last < next;
  if (range.first < next && !holds_any(*cache_, {range.first, std::max(range.last, range.first + 1)}))
    fail("the tokens {}:{} were evicted: no head holds one of them; edit others, or use mode exact", range.first,
         std::max(range.last, range.first + 1));
  if (middle) check_move(range, by, hyper, pins);
  if (repeats() && middle && !tokens.empty())
    fail("method {} reads a prompt twice, to its end: use mode exact", options_.method.name);
  if (passes_.several() && middle && !tokens.empty())
    fail("a prompt that is read layer by layer ends with the text: use mode exact, or leave out --prefill-layerwise");
  if (const auto window = full_window(*cache_, next + std::max<Position>(by, 0)); middle && !tokens.empty() && window)
    fail(
        "layers with an attention window of {} have dropped tokens that those at position {} would see: use mode exact",
        *window, range.first);
  if (middle)
    evictions_.edit(range, by, hyper);
  else
    rewind(range.first);
  stage_ = Stage::kIdle;
  if (tokens.empty()) return;
  read(tokens);
  if (middle) at_ = range.first;
}

void Sequence::drop(PositionRange range, const Hyperparameters& hyper) {
  accept(0);
  check_edit(range);
  if (range.empty()) return;
  if (range.last == cache_->next()) return rewind(range.first);
  check_move(range, 0, hyper);
  if (rule().two_query)
    fail("method {} has positions inside the cache, which leave no gap: edit the range instead", options_.method.name);
  evictions_.edit(range, 0, hyper);
  stage_ = Stage::kIdle;
}

void Sequence::shift(PositionRange range, Position by, const Hyperparameters& hyper) {
  accept(0);
  check_edit({range.first, range.last == kEndOfText ? std::max(range.first, cache_->next()) : range.last});
  if (range.empty() || by == 0) return;
  check_move(range, by, hyper);
  if (rule().two_query)
    fail("method {} has positions inside the cache, which leave no gap: edit the range instead", options_.method.name);
  evictions_.shift(range, by, hyper);
  stage_ = Stage::kIdle;
}

Position Sequence::unaffected_until(Position first, long long tokens) const {
  const Method& m = options_.method;
  if (!m.cache || cache_->table(0).edited()) return 0;
  if (cache_->options().state_floats > 0 && first < cache_->next()) return 0;  // a state forgets nothing
  if (m.evicts() && !forgets_nothing(m, plan_->signals())) return 0;
  if (full_window(*cache_, cache_->next())) return 0;
  // Evictions follow chunks.
  const bool evicts = m.evicts() && tokens > plan_->nothing_evicted_until();
  const Position start = evicts ? first - first % options_.chunk : first;
  return holds_all(*cache_, start) ? start : 0;
}

}  // namespace palimpsest
