// Prefix caching: caches of prompt prefixes, reused by prompts with the same prefix.
//
//   prompt   | chunk | chunk | chunk | rest |          a prefix ends at the end of a chunk that is not the last, and
//                                                      before the queries that a policy's window holds at the end
//            '--- kept ---'
//                    '------- kept ------'             its pages are shared (copy-on-write) with the sequence that
//                                                      read it, and with shorter prefixes
//
// Chunks have a fixed size, so the cache after some chunks depends only on the method and the tokens, evictions
// included: a sequence that continues from a prefix is bitwise equal to one that read the prompt itself. While nothing
// was evicted, methods may differ: see serves(). Rationale: docs/decisions/0010-shared-prefixes.md.
//
// Each page is counted once, even if several prefixes share it. Not thread safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "palimpsest/engine/sequence.h"

namespace palimpsest {

// The choices that a prefix's cache depends on.
struct PrefixKey {
  explicit PrefixKey(const MethodPlan& plan);

  Method method;
  int chunk;
  Rotation rotation;                // how keys are stored, and rounded on read
  std::string statistics;           // the policy that scores tokens in prefill; empty: none
  std::size_t window;               // the prompt's last tokens, whose queries the policy needs at its end: at least 1
  long long nothing_evicted_until;  // MethodPlan::nothing_evicted_until
  CacheOptions cache;               // those of one method differ in their spare slots
};
// Whether sequences of `from` and of `to` have equal caches after `tokens` tokens. `whole`: the cache of `from` holds
// all tokens that `to` needs, in the same slots (Cache::compatible_with).
bool serves(const PrefixKey& from, std::size_t tokens, bool whole, const PrefixKey& to);

class PrefixCache {
 public:
  // The longest usable prefix of `prompt`, without its last `key.window` tokens and longer than `read` tokens; nullptr:
  // none. Marks it and its own prefixes as most recently used.
  Cache* find(const PrefixKey& key, std::span<const TokenId> prompt, std::size_t read);
  // Keeps `cache`, which holds the first `read` tokens of `prompt`: the end of a chunk. Evicts other prefixes until all
  // have at most `max` bytes; does nothing if this one alone has more, or if fewer than `key.window` tokens follow.
  // Throws Error or std::bad_alloc without memory, and has no effect then.
  void keep(const PrefixKey& key, std::span<const TokenId> prompt, std::size_t read, Cache& cache, std::size_t max);
  // Evicts the least recently used prefix, of equals the longest. false: there was none.
  bool evict_one() noexcept;

  // All pages, each counted once, and the prefixes' tokens, tables and statistics.
  std::size_t bytes() const { return bytes_of_pages() + beside_pages_; }
  std::size_t bytes_of_pages() const { return users_.size() * page_bytes_; }
  std::size_t bytes_beside_pages() const { return beside_pages_; }
  std::size_t size() const { return kept_.size(); }

 private:
  struct Kept {
    PrefixKey key;
    std::vector<TokenId> tokens;
    std::unique_ptr<Cache> cache;
    std::vector<PageId> pages = {};
    std::size_t beside_pages = 0;  // bytes
    std::uint64_t used = 0;
  };
  static bool may_serve(const Kept& kept, const PrefixKey& to);
  static bool begins(const Kept& kept, std::span<const TokenId> prompt);
  void touch(const PrefixKey& key, std::span<const TokenId> prompt);
  void count_pages(Kept& kept);
  void evict_pages(std::span<const PageId> pages) noexcept;

  std::vector<std::unique_ptr<Kept>> kept_;
  std::unordered_map<PageId, int> users_;  // number of prefixes that share a page
  std::size_t page_bytes_ = 0, beside_pages_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace palimpsest
