#include "palimpsest/engine/session.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

SessionOptions checked(const SessionOptions& options) {
  if (options.chunk < 1) fail("chunk {}: give at least 1 token", options.chunk);
  return options;
}

}  // namespace

// Which chunks are exact, for sinks + window (s sinks, budget B):
//
//   every = 1, keys rotated when written   any: the query at p sees the sinks and the last B - s tokens by a mask
//   else                                   up to the next eviction: no token leaves inside it, so no mask is needed
//
// Late rotation takes the sinks' distance from ranks, which a mask would leave too large: hence the second row.
AttentionRule attention_rule(const Method& m, RopeKind rope) {
  AttentionRule rule;
  rule.rotation = Rotation::kAtWrite;
  if (rope == RopeKind::kNone) {
    if (m.positions == Positions::kCache)
      fail("positions cache: this model has no rotary positions to move; use positions=original");
    rule.rotation = Rotation::kNever;
  } else if (m.positions == Positions::kCache && (m.bounded() || m.rerotate == Rerotate::kLate)) {
    const bool strict = m.windowed() && m.every == 1;
    if (m.rerotate == Rerotate::kTwoQuery && !strict)
      fail("rerotate two-query with every {}: the window must move in every step; use rerotate=late", m.every);
    rule.two_query = strict && m.rerotate != Rerotate::kLate;
    if (!rule.two_query) rule.rotation = Rotation::kLate;
  }
  if (m.windowed() && m.every == 1 && rule.rotation != Rotation::kLate) {
    rule.sinks = m.protection.sinks;
    rule.window = m.budget - m.protection.sinks;
  }
  return rule;
}

CacheOptions cache_options(const SessionOptions& options, const CacheOptions& shape, RopeKind rope) {
  CacheOptions cache = shape;
  cache.type = options.cache_type;
  cache.page_size = options.page_size;
  cache.mechanism = options.method.mechanism;
  cache.shared = Evictor(options.method).needs().positions_only();
  cache.track_rank = attention_rule(options.method, rope).rotation == Rotation::kLate;
  return cache;
}

Occupancies occupancies(const SessionOptions& options, RopeKind rope, long long prompt, long long tokens) {
  const Method& m = options.method;
  const auto at_most = [&](long long count) { return tokens < 0 ? count : std::min(count, tokens); };
  if (!m.bounded()) {
    assert(tokens >= prompt);
    return {.writing = {.tokens = tokens, .leave = 0},
            .reading = {.tokens = prompt, .come = std::clamp<long long>(prompt, 1, options.chunk), .leave = 0}};
  }
  const long long full = m.budget + m.every - 1LL;
  Occupancies out{.writing = {.tokens = at_most(full), .leave = m.every}, .reading = {}};
  if (m.windowed() && attention_rule(m, rope).window == 0) {  // chunks that fit, see chunk_that_fits
    out.reading = {.tokens = at_most(full),
                   .come = std::clamp<long long>(prompt, 1, std::min<long long>(options.chunk, full)),
                   .leave = m.every};
    return out;
  }
  // Chunk i comes on top of budget - 1 tokens, or of the i chunks before it.
  const long long chunk = options.chunk, whole = prompt / chunk, kept = m.budget - 1LL;
  const long long last = std::min(whole * chunk, kept) + prompt % chunk;
  const long long before = whole == 0 ? 0 : std::min((whole - 1) * chunk, kept) + chunk;
  const long long come = std::clamp(prompt, 1LL, chunk);
  out.reading = {.tokens = std::max({last, before, out.writing.tokens}), .come = come, .leave = come};
  return out;
}

Session::Session(std::shared_ptr<Decoder> decoder, const SessionOptions& options)
    : decoder_(std::move(decoder)), options_(checked(options)), evictor_(options.method) {
  const RopeKind rope = decoder_->model().hyper().rope.kind;
  rule_ = attention_rule(options_.method, rope);
  cache_ = std::make_unique<Cache>(palimpsest::cache_options(options_, decoder_->cache_options(), rope));
}

// How many of `wanted` tokens may go through the model at once, after the plan for them was applied.
std::size_t Session::chunk_that_fits(std::size_t wanted) const {
  std::size_t most = static_cast<std::size_t>(options_.chunk);
  const Method& m = options_.method;
  if (m.windowed() && rule_.window == 0) {
    const int room = m.budget - 1 + m.every - cache_->live();
    assert(room >= 1);
    most = std::min(most, static_cast<std::size_t>(room));
  }
  return std::min(wanted, most);
}

std::span<const float> Session::step(std::span<const TokenId> tokens, bool all_logits) {
  cache_->insert(static_cast<int>(tokens.size()));
  if (options_.memory_limit > 0 && cache_->bytes_in_use() > options_.memory_limit)
    fail("the cache holds {} tokens and reached its limit of {} MiB: give a --budget, or ask for fewer tokens",
         cache_->live(), options_.memory_limit >> 20);
  SequenceStep step;
  step.cache = cache_.get();
  step.rule = rule_;
  step.tokens = tokens;
  step.all_logits = all_logits;
  return decoder_->step({&step, 1});
}

template <typename Done>
void Session::in_chunks(std::span<const TokenId> tokens, bool all_logits, const Progress& progress, Done done) {
  const auto total = static_cast<long long>(tokens.size());
  const int budget = options_.method.budget;
  while (!tokens.empty()) {
    if (budget > 0) cache_->apply(evictor_.plan(*cache_, budget - 1));
    const auto chunk = tokens.first(chunk_that_fits(tokens.size()));
    tokens = tokens.subspan(chunk.size());
    const auto logits = step(chunk, all_logits);
    if (budget > 0 && chunk.size() > 1) cache_->apply(evictor_.plan(*cache_, budget));
    done(logits, chunk.size());
    if (progress && !progress(total - static_cast<long long>(tokens.size()), total)) return;
  }
}

std::span<const float> Session::prefill(std::span<const TokenId> tokens, const Progress& progress) {
  assert(!tokens.empty());
  std::span<const float> last;
  in_chunks(tokens, false, progress, [&](std::span<const float> logits, std::size_t) { last = logits; });
  return last;
}

std::span<const float> Session::decode(TokenId token) {
  return prefill({&token, 1});
}

void Session::read(std::span<const TokenId> tokens, const Visit& visit, const Progress& progress) {
  long long index = 0;
  in_chunks(tokens, true, progress, [&](std::span<const float> logits, std::size_t count) {
    const std::size_t width = logits.size() / count;
    for (std::size_t i = 0; i < count; ++i) visit(index++, logits.subspan(i * width, width));
  });
}

void Session::pretend(long long tokens) {
  const int budget = options_.method.budget;
  while (tokens > 0) {
    if (budget > 0) cache_->apply(evictor_.plan(*cache_, budget - 1));
    const auto chunk = static_cast<int>(chunk_that_fits(static_cast<std::size_t>(tokens)));
    cache_->insert(chunk);
    if (budget > 0 && chunk > 1) cache_->apply(evictor_.plan(*cache_, budget));
    tokens -= chunk;
  }
}

void Session::clear() {
  cache_->clear();
}

}  // namespace palimpsest
