// A sequence's saved form, and continuing from another's cache.
#include <algorithm>
#include <cassert>
#include <climits>

#include "palimpsest/engine/sequence/sequence.h"

namespace palimpsest {

void Sequence::continue_from(Cache& kept, Position tokens) {
  assert(options_.method.cache);
  cache_->share(kept);
  if (tokens < kept.next()) cache_->drop(tokens, kEndOfText);
  evictor_.scorer().continue_window(cache_->next(), options_.chunk);
  continues_ = true;
  // Scores of another method's policy are not valid for this one.
  const Signals& signals = plan_->signals();
  if ((!signals.weights() || signals.repeat) && !signals.score_on_insert && cache_->compatible_with(cache_->options()))
    for (int t = 0; t < cache_->tables(); ++t) std::ranges::fill(cache_->table(t).score(), 0.0F);
  evictor_.invalidate(*cache_);
  evictions_.restart_memory_log();
}

void Sequence::continue_from(Cache& kept, std::span<const std::byte> state, bool in_prompt) {
  assert(options_.method.cache);
  cache_->share(kept);
  evictor_.invalidate(*cache_);
  continues_ = in_prompt;
  ByteReader in(state, "a kept cache is damaged");
  evictor_.load(in, *cache_);
  evictions_.restart_memory_log();
}

std::vector<std::byte> Sequence::state() const {
  check_whole();
  std::vector<std::byte> bytes;
  ByteWriter out([&](std::span<const std::byte> data) { bytes.insert(bytes.end(), data.begin(), data.end()); });
  evictor_.save(out);
  return bytes;
}

void Sequence::save(ByteWriter& out) const {
  if (recall_ != nullptr) fail("recall: evicted tokens are not saved in snapshots: leave recall out");
  assert(drafts_ == 0);
  check_whole();
  window_.save(out);
  fetch_scores();
  cache_->save(out);
  evictor_.save(out);
}

void Sequence::save(ByteWriter& out, const Cache& cache, std::span<const std::byte> state) {
  out.array(std::span<const TokenId>());  // RecomputeWindow
  cache.save(out);
  out.bytes(state);
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
  window_.load(in);
  cache_->load_tables(in);
  for (int t = 0; t < cache_->tables(); ++t)
    if (const MergedTokens* const merged = cache_->merged(t); merged != nullptr && !merged->tokens().empty())
      in.require(merged->own_positions() == (m.merge_position == MergePosition::kOwn),
                 "merged tokens of another method");
}

void Sequence::load_pages(ByteReader& in) {
  cache_->load_pages(in);
  evictor_.load(in, *cache_);
  evictions_.restart_memory_log();
}

}  // namespace palimpsest
