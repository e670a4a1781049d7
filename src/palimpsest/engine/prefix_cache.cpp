#include "palimpsest/engine/prefix_cache.h"

#include <algorithm>
#include <tuple>

namespace palimpsest {

PrefixKey::PrefixKey(const MethodPlan& plan)
    : method(plan.method()),
      chunk(plan.chunk()),
      rotation(plan.rule().rotation),
      window(1),
      nothing_evicted_until(plan.nothing_evicted_until()),
      cache(plan.cache()) {
  const Signals signals = plan.signals(Phase::kPrefill);
  if (signals.attention_window) window = at(signals.attention_window->queries);
  if (signals.weights() || signals.score_on_insert || signals.query_moments) statistics = method.policy;
}

bool serves(const PrefixKey& from, std::size_t tokens, bool whole, const PrefixKey& to) {
  if (from.chunk != to.chunk) return false;
  if (from.method == to.method && from.cache == to.cache) return true;
  return whole && static_cast<long long>(tokens) <= to.nothing_evicted_until &&
         tokens % static_cast<std::size_t>(to.chunk) == 0 && from.rotation == to.rotation &&
         (to.statistics.empty() || to.statistics == from.statistics);
}

bool PrefixCache::may_serve(const Kept& kept, const PrefixKey& to) {
  return serves(kept.key, kept.tokens.size(), kept.cache->compatible_with(to.cache), to);
}

bool PrefixCache::begins(const Kept& kept, std::span<const TokenId> prompt) {
  return kept.tokens.size() <= prompt.size() && std::equal(kept.tokens.begin(), kept.tokens.end(), prompt.begin());
}

Cache* PrefixCache::find(const PrefixKey& key, std::span<const TokenId> prompt, std::size_t read) {
  Kept* best = nullptr;
  for (const auto& kept : kept_) {
    const std::size_t tokens = kept->tokens.size();
    if (tokens <= read || tokens + key.window > prompt.size() || (best != nullptr && tokens <= best->tokens.size()))
      continue;
    if (begins(*kept, prompt) && may_serve(*kept, key)) best = kept.get();
  }
  if (best == nullptr) return nullptr;
  touch(key, best->tokens);
  return best->cache.get();
}

void PrefixCache::touch(const PrefixKey& key, std::span<const TokenId> prompt) {
  ++clock_;
  for (const auto& kept : kept_)
    if (begins(*kept, prompt) && may_serve(*kept, key)) kept->used = clock_;
}

void PrefixCache::keep(const PrefixKey& key, std::span<const TokenId> prompt, std::size_t read, Cache& cache,
                       std::size_t max) {
  if (read + key.window > prompt.size()) return;
  const auto tokens = prompt.first(read);
  if (cache.bytes_in_use() + cache.bytes_tables() > max) return;  // before anything is copied
  const bool known = std::ranges::any_of(kept_, [&](const auto& kept) {
    return kept->tokens.size() == tokens.size() && begins(*kept, tokens) && may_serve(*kept, key);
  });
  if (!known) {
    kept_.push_back(std::make_unique<Kept>(key, std::vector(tokens.begin(), tokens.end()), cache.fork()));
    page_bytes_ = page_bytes(cache.view(0));
    try {
      count_pages(*kept_.back());
    } catch (...) {
      kept_.pop_back();
      throw;
    }
    Kept& kept = *kept_.back();
    kept.beside_pages = sizeof(Kept) + tokens.size() * sizeof(TokenId) + kept.pages.size() * sizeof(kept.pages[0]) +
                        kept.cache->bytes_tables();
    beside_pages_ += kept.beside_pages;
  }
  touch(key, tokens);
  while (bytes() > max) evict_one();
}

void PrefixCache::count_pages(Kept& kept) {
  kept.pages = kept.cache->pages();
  std::size_t counted = 0;
  try {
    for (; counted < kept.pages.size(); ++counted) ++users_[kept.pages[counted]];
  } catch (...) {
    evict_pages(std::span(kept.pages).first(counted));
    throw;
  }
}

void PrefixCache::evict_pages(std::span<const PageId> pages) noexcept {
  for (const PageId page : pages)
    if (const auto users = users_.find(page); --users->second == 0) users_.erase(users);
}

bool PrefixCache::evict_one() noexcept {
  if (kept_.empty()) return false;
  const auto last = std::ranges::min_element(
      kept_, {}, [](const auto& kept) { return std::tuple(kept->used, -static_cast<long long>(kept->tokens.size())); });
  evict_pages((*last)->pages);
  beside_pages_ -= (*last)->beside_pages;
  kept_.erase(last);
  return true;
}

}  // namespace palimpsest
