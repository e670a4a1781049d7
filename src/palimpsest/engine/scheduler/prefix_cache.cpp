#include "palimpsest/engine/scheduler/prefix_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <tuple>

namespace palimpsest {
namespace {

// What fewer than 1 / kRare as many prompts continue from as from the other, of the ends of prompts and of answers, is
// not written to disk, and is evicted first.
constexpr long long kRare = 4;
constexpr long long kRememberedUses = 64;

}  // namespace

PrefixKey::PrefixKey(const MethodPlan& plan, int scope, std::string session, std::chrono::seconds pin)
    : scope(scope),
      method(plan.method()),
      chunk(plan.chunk()),
      rotation(plan.rule().rotation),
      window(1),
      nothing_evicted_until(plan.nothing_evicted_until()),
      cache(plan.cache()),
      session(std::move(session)),
      pin(pin) {
  const Signals signals = plan.signals(Phase::kPrefill);
  if (signals.attention_window) window = at(signals.attention_window->queries);
  if (signals.references) window = std::max(window, at(signals.references->queries));
  if (signals.weights() || signals.score_on_insert || signals.queries())
    statistics = fmt::format("{} {} {} {}", method.policy, window, cache.columns, cache.head_floats);
}

bool compatible_with(const PrefixKey& from, std::size_t tokens, bool whole, const PrefixKey& to) {
  if (from.chunk != to.chunk || from.scope != to.scope) return false;
  const bool alike = from.method == to.method && from.cache == to.cache;
  // Budgets of heads since the last decision are no part of a prefix.
  if (alike) return !to.method.splits_at_decisions() || static_cast<long long>(tokens) <= to.nothing_evicted_until;
  return whole && static_cast<long long>(tokens) <= to.nothing_evicted_until &&
         tokens % static_cast<std::size_t>(to.chunk) == 0 && from.rotation == to.rotation &&
         (to.statistics.empty() || to.statistics == from.statistics);
}

bool PrefixCache::may_serve(const Kept& kept, const PrefixKey& to) {
  return !kept.history && compatible_with(kept.key, kept.tokens.size(), kept.cache->compatible_with(to.cache), to);
}

bool PrefixCache::begins(const Kept& kept, std::span<const TokenId> prompt) {
  return kept.tokens.size() <= prompt.size() && std::equal(kept.tokens.begin(), kept.tokens.end(), prompt.begin());
}

PrefixCache::Kept* PrefixCache::longest_prefix(const PrefixKey& key, std::span<const TokenId> prompt,
                                               std::size_t read) const {
  Kept* best = nullptr;
  for (const auto& kept : kept_) {
    const std::size_t tokens = kept->tokens.size();
    if (tokens <= read || tokens + key.window > prompt.size() || (best != nullptr && tokens <= best->tokens.size()))
      continue;
    if (begins(*kept, prompt) && may_serve(*kept, key)) best = kept.get();
  }
  return best;
}

Cache* PrefixCache::find(const PrefixKey& key, std::span<const TokenId> prompt, std::size_t read) {
  Kept* const best = longest_prefix(key, prompt, read);
  if (best == nullptr) return nullptr;
  touch(key, best->tokens, /*found=*/true);
  best->used_again = true;
  return best->cache.get();
}

std::size_t PrefixCache::longest(const PrefixKey& key, const PrefixKey* history, std::span<const TokenId> prompt,
                                 const Vocabulary* vocabulary) const {
  const Kept* const prefix = longest_prefix(key, prompt, 0);
  std::size_t longest = prefix == nullptr ? 0 : prefix->tokens.size();
  if (history == nullptr) return longest;
  const auto [kept, next] = longest_history(*history, prompt, vocabulary);
  return kept == nullptr ? longest : std::max(longest, next.matched);
}

void PrefixCache::touch(const PrefixKey& key, std::span<const TokenId> prompt, bool found) {
  ++clock_;
  for (const auto& kept : kept_) {
    if (!begins(*kept, prompt) || !may_serve(*kept, key)) continue;
    use(*kept, key);
    kept->begins_others = kept->begins_others || found;
  }
}

// Now, at clock_. Returns the pin of a cache that continues this one.
std::chrono::seconds PrefixCache::use(Kept& kept, const PrefixKey& by) {
  kept.used = clock_;
  kept.used_at = std::chrono::steady_clock::now();
  kept.shared = kept.shared || kept.key.session != by.session;
  if (kept.pinned_until < std::chrono::steady_clock::now()) kept.key.pin = std::chrono::seconds(0);  // it has ended
  kept.key.pin = std::max(kept.key.pin, by.pin);
  if (kept.key.pin.count() > 0) kept.pinned_until = std::chrono::steady_clock::now() + kept.key.pin;
  return of_another(kept, by) ? by.pin : kept.key.pin;
}

void PrefixCache::keep(const PrefixKey& key, std::span<const TokenId> prompt, std::size_t read, Sequence& sequence,
                       std::size_t max) {
  if (read + key.window > prompt.size()) return;
  Cache& cache = sequence.cache();
  const auto tokens = prompt.first(read);
  if (cache.bytes_in_use() + cache.bytes_tables() > max) return;  // before anything is copied
  const bool known = std::ranges::any_of(kept_, [&](const auto& kept) {
    return kept->tokens.size() == tokens.size() && begins(*kept, tokens) && may_serve(*kept, key);
  });
  if (!known)
    add({.key = key,
         .tokens = {tokens.begin(), tokens.end()},
         .cache = cache.fork(),
         .writable = !sequence.repeats(),  // the second reading of a prompt begins at its beginning
         .state = sequence.state()});
  touch(key, tokens, /*found=*/false);
  while (bytes() > max) evict_one();
}

// Counts its pages and bytes.
void PrefixCache::add(Kept added) {
  kept_.push_back(std::make_unique<Kept>(std::move(added)));
  Kept& kept = *kept_.back();
  try {
    count_pages(kept);
  } catch (...) {
    kept_.pop_back();
    throw;
  }
  kept.overhead_bytes = sizeof(Kept) + kept.key.session.size() + kept.tokens.size() * sizeof(TokenId) +
                        kept.state.size() + kept.logits.size() * sizeof(float) +
                        kept.pages.size() * sizeof(kept.pages[0]) + kept.cache->bytes_tables();
  if (!kept.key.cache.pages) kept.overhead_bytes += kept.cache->bytes_in_use();
  overhead_bytes_ += kept.overhead_bytes;
}

// Whether sequences of `key` have the same cache after the same steps.
bool PrefixCache::same_history(const Kept& kept, const PrefixKey& key) {
  return kept.history && kept.key.scope == key.scope && kept.key.chunk == key.chunk && kept.key.method == key.method &&
         kept.key.cache == key.cache;
}

// The same, but for pins, whose positions are those of each text.
bool PrefixCache::may_edit(const Kept& kept, const PrefixKey& key) {
  if (!kept.history || kept.key.method.name != key.method.name) return false;
  PrefixKey like = key;
  like.method.protection.pins = kept.key.method.protection.pins;
  return same_history(kept, like);
}

std::pair<PrefixCache::Kept*, Continuation> PrefixCache::longest_history(const PrefixKey& key,
                                                                         std::span<const TokenId> prompt,
                                                                         const Vocabulary* vocabulary) const {
  Kept* best = nullptr;
  Continuation next;
  for (const auto& kept : kept_) {
    if (!same_history(*kept, key)) continue;
    auto found = continuation(kept->tokens, prompt, vocabulary);
    if (!found || (found->rest.empty() && kept->logits.empty())) continue;
    if (best != nullptr && found->rest.size() >= next.rest.size()) continue;
    best = kept.get();
    next = std::move(*found);
  }
  return {best, std::move(next)};
}

std::optional<History> PrefixCache::find_history(const PrefixKey& key, std::span<const TokenId> prompt,
                                                 const Vocabulary* vocabulary) {
  auto [best, next] = longest_history(key, prompt, vocabulary);
  if (best == nullptr) return std::nullopt;
  ++clock_;
  const auto pin = use(*best, key);
  if (!best->in_prompt && !next.rest.empty()) count_use(!best->logits.empty());
  best->continued = best->continued || !of_another(*best, key);
  return History{.cache = *best->cache,
                 .state = best->state,
                 .in_prompt = best->in_prompt,
                 .tokens = best->tokens,
                 .next = std::move(next),
                 .logits = best->logits,
                 .pin = pin};
}

std::optional<EditedHistory> PrefixCache::find_edited(const PrefixKey& key, std::span<const TokenId> prompt,
                                                      const Vocabulary* vocabulary, std::size_t min) {
  std::size_t unread = prompt.size(), gain = min;
  if (const Kept* const prefix = longest_prefix(key, prompt, 0)) unread -= prefix->tokens.size();
  if (const auto [history, next] = longest_history(key, prompt, vocabulary); history != nullptr)
    unread = std::min(unread, next.rest.size());
  std::vector<Kept*> candidates;  // one of each chat: those that were continued are the beginning of another
  for (const auto& kept : kept_)
    if (may_edit(*kept, key) && !is_followed(*kept)) candidates.push_back(kept.get());
  std::ranges::sort(candidates, std::greater(), &Kept::used);
  candidates.resize(std::min(candidates.size(), kMaxEdited));
  if (candidates.empty() || unread <= gain) return std::nullopt;
  const TextDiff diff(prompt.first(prompt.size() - 1), min);
  Kept* best = nullptr;
  std::vector<CommonRun> best_runs;
  for (Kept* const kept : candidates) {
    if (unread <= gain) break;
    std::vector<CommonRun> runs = diff.runs(kept->tokens);
    std::size_t left = prompt.size();
    for (const CommonRun& run : runs) left -= run.tokens;
    // A beginning alone is no edit: what stands behind it would have to be forgotten.
    const bool edits = !runs.empty() && (runs.back().in_text > 0 || runs.back().in_read > 0);
    if (!edits || left + gain > unread) continue;
    unread = left;
    best = kept;
    best_runs = std::move(runs);
    gain = 1;  // the others need only be better
  }
  if (best == nullptr) return std::nullopt;
  ++clock_;
  const auto pin = use(*best, key);
  return EditedHistory{.cache = *best->cache,
                       .state = best->state,
                       .in_prompt = best->in_prompt,
                       .tokens = best->tokens,
                       .runs = std::move(best_runs),
                       .unread = unread,
                       .pin = pin};
}

void PrefixCache::keep_history(const PrefixKey& key, std::span<const TokenId> tokens, Sequence& sequence,
                               bool in_prompt, std::span<const float> logits, std::size_t max) {
  Cache& cache = sequence.cache();
  if (cache.bytes_in_use() + cache.bytes_tables() > max) return;  // before anything is copied
  const auto known = std::ranges::find_if(kept_, [&](const auto& kept) {
    return same_history(*kept, key) && kept->in_prompt == in_prompt && std::ranges::equal(kept->tokens, tokens);
  });
  if (known != kept_.end())
    std::iter_swap(known, kept_.end() - 1);
  else
    add({.key = key,
         .tokens = {tokens.begin(), tokens.end()},
         .cache = cache.fork(),
         .history = true,
         .in_prompt = in_prompt,
         .state = sequence.state(),
         .logits = {logits.begin(), logits.end()}});
  Kept& kept = *kept_.back();
  ++clock_;
  use(kept, key);
  kept.continued = false;
  kept.answered = false;
  const bool answer = !in_prompt && logits.empty();
  Kept* newest = nullptr;  // of an answer: its prompt
  for (const auto& other : kept_) {
    if (other.get() == &kept || !same_history(*other, key) || !begins(*other, tokens) || of_another(*other, key))
      continue;
    if (answer && !other->logits.empty() && (newest == nullptr || newest->tokens.size() < other->tokens.size()))
      newest = other.get();
    other->continued = other->continued || !answer || other->logits.empty();
  }
  if (newest != nullptr) newest->answered = true;
  while (bytes() > max) evict_one();
}

void PrefixCache::count_pages(Kept& kept) {
  kept.pages = kept.cache->pages();
  std::size_t counted = 0;
  try {
    for (; counted < kept.pages.size(); ++counted)
      if (const PageId page = kept.pages[counted]; ++users_[page] == 1)
        bytes_of_pages_ += kept.cache->pool()->bytes_of(page);
  } catch (...) {
    evict_pages(kept, counted);
    throw;
  }
}

void PrefixCache::evict_pages(const Kept& kept, std::size_t count) noexcept {
  for (const PageId page : std::span(kept.pages).first(count)) {
    const auto users = users_.find(page);
    if (--users->second > 0) continue;
    users_.erase(users);
    bytes_of_pages_ -= kept.cache->pool()->bytes_of(page);
  }
}

void PrefixCache::count_use(bool at_prompt_end) noexcept {
  ++(at_prompt_end ? prompt_end_uses_ : answer_end_uses_);
  if (prompt_end_uses_ + answer_end_uses_ <= kRememberedUses) return;
  prompt_end_uses_ /= 2;
  answer_end_uses_ /= 2;
}

// Whether what follows it in its chat is kept.
bool PrefixCache::is_followed(const Kept& kept) const {
  return kept.continued || kept.answered;
}

// Whether a prompt is not expected to continue from it.
bool PrefixCache::begins_no_prompt(const Kept& kept) const {
  if (!kept.history) return !kept.begins_others;
  if (kept.continued) return true;
  if (kept.answered) return kRare * prompt_end_uses_ <= answer_end_uses_;
  const bool answer = !kept.in_prompt && kept.logits.empty();
  return answer && kRare * answer_end_uses_ < prompt_end_uses_;
}

// The order of evictions.
auto PrefixCache::rank(const Kept& kept, std::chrono::steady_clock::time_point now) const {
  const bool last = !begins_no_prompt(kept);
  const bool pinned = kept.pinned_until > now && (last || !kept.history);
  return std::tuple(pinned, last, kept.used, -static_cast<long long>(kept.tokens.size()));
}

bool PrefixCache::evict_one() noexcept {
  if (kept_.empty()) return false;
  const auto now = std::chrono::steady_clock::now();
  // The one that is being written last, so that writes end.
  evict(std::ranges::min_element(
      kept_, {}, [&](const auto& kept) { return std::pair(kept.get() == writing_, rank(*kept, now)); }));
  return true;
}

// What a longer one continues is in that one's file.
bool PrefixCache::is_worth_writing(const Kept& kept) const {
  if (kept.history && !is_followed(kept)) return true;
  if (kept.history)
    return kRare * prompt_end_uses_ >= answer_end_uses_ && !kept.logits.empty() &&
           std::ranges::none_of(kept_, [&](const auto& other) {
             return other->tokens.size() > kept.tokens.size() && !other->logits.empty() &&
                    same_history(*other, kept.key) && begins(kept, other->tokens);
           });
  return kept.used_again || std::ranges::none_of(kept_, [&](const auto& other) {
           return other->tokens.size() > kept.tokens.size() && begins(kept, other->tokens) &&
                  other->key.scope == kept.key.scope && other->key.method == kept.key.method &&
                  other->key.chunk == kept.key.chunk && other->key.cache == kept.key.cache;
         });
}

std::optional<PrefixCache::Unwritten> PrefixCache::begin_to_write(std::chrono::milliseconds unused_for,
                                                                  std::function<void()> on_evict) {
  const auto now = std::chrono::steady_clock::now();
  Kept* next = nullptr;
  for (const auto& kept : kept_)
    if (kept->writable && !kept->written && kept->used_at + unused_for <= now &&
        (next == nullptr || rank(*kept, now) < rank(*next, now)) && is_worth_writing(*kept))
      next = kept.get();
  if (next == nullptr) return std::nullopt;
  next->written = true;
  writing_ = next;
  on_evict_ = std::move(on_evict);
  const auto pin = std::max(next->pinned_until - now, std::chrono::steady_clock::duration(0));
  return Unwritten{.key = next->key,
                   .history = next->history,
                   .at_prompt_end = !next->logits.empty(),
                   .in_prompt = !next->history || next->in_prompt,
                   .tokens = next->tokens,
                   .cache = *next->cache,
                   .state = next->state,
                   .pin = std::chrono::duration_cast<std::chrono::seconds>(pin)};
}

PrefixCache::KeptCaches::iterator PrefixCache::evict(KeptCaches::iterator at) noexcept {
  if (at->get() == writing_) {
    on_evict_();
    writing_ = nullptr;
  }
  evict_pages(**at, (*at)->pages.size());
  overhead_bytes_ -= (*at)->overhead_bytes;
  return kept_.erase(at);
}

void PrefixCache::close_session(const std::string& session, int scope) noexcept {
  for (auto at = kept_.begin(); at != kept_.end();) {
    const Kept& kept = **at;
    at = kept.key.scope == scope && kept.key.session == session && !kept.shared ? evict(at) : at + 1;
  }
}

}  // namespace palimpsest
