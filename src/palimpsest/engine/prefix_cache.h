// Beginnings of prompts that were read already, for the prompts that begin alike.
//
//   prompt   | chunk | chunk | chunk | rest |          a beginning ends where a chunk ends and the prompt goes on
//            '--- kept ---'
//                    '------- kept ------'             its pages are those of the sequence that read it, shared until
//                                                      that one writes in them, and of the beginnings before it
//
// Chunks have a fixed size, so what a cache is after some of them follows from the method and the tokens, whatever left
// on the way; a sequence that goes on from there is, to the last bit, the one that would have read them itself. As long
// as nothing has left, methods may differ, too: see serves(). Why: docs/decisions/0010-shared-prefixes.md.
//
// Pages are counted once each, however many beginnings they are of. Not for several threads at once.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "palimpsest/engine/sequence.h"

namespace palimpsest {

// How a sequence reads a prompt.
struct PrefixKey {
  explicit PrefixKey(const MethodPlan& plan);

  Method method;
  int chunk;
  Rotation rotation;       // what keys are in the cache, and how they are rounded when they are read
  std::string statistics;  // the policy that scores tokens while they are read; empty: none, or its scores are not kept
  long long whole_until;   // no token was evicted after so many
  CacheOptions cache;
};
// Whether a sequence that reads as `to` does would have the cache that one of `from` has after `tokens` tokens;
// `whole`: it lost none that `to` would have (Cache::serves).
bool serves(const PrefixKey& from, std::size_t tokens, bool whole, const PrefixKey& to);

class PrefixCache {
 public:
  // The longest kept beginning of `prompt` that a sequence of this reading would have come to, shorter than the prompt
  // and longer than `read`; nullptr: there is none. It and those before it are the last to be forgotten.
  Cache* find(const PrefixKey& key, std::span<const TokenId> prompt, std::size_t read);
  // `tokens` were read into `cache`, at the end of a chunk that is not its prompt's last. Others are forgotten until
  // all have at most `most` bytes; if this one alone has more, nothing is done. Nor is anything if there is no memory:
  // throws Error or std::bad_alloc.
  void keep(const PrefixKey& key, std::span<const TokenId> tokens, Cache& cache, std::size_t max);
  // The least recently used, of one prompt's the longest. false: there was none.
  bool forget_one() noexcept;

  // Of all pages, each counted once, and of what the beginnings have for themselves: tokens, tables, statistics.
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
  void forget_pages(std::span<const PageId> pages) noexcept;

  std::vector<std::unique_ptr<Kept>> kept_;
  std::unordered_map<PageId, int> users_;  // beginnings that a page is of
  std::size_t page_bytes_ = 0, beside_pages_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace palimpsest
