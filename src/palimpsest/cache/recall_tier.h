// A second tier below the pages of a sequence's cache: keys and values of tokens that were evicted, of each head, which
// queries may attend to again (attention/recalled.h). Bounded: when a head's tier is full, its oldest page is replaced.
//
// A page holds kTile tokens of one head in the layout of a cache page of that size (cache/view.h), as wide as its
// layer's keys and values, in the order in which they were evicted.
//
// Keys are stored as the cache has them: rotated by the token's position in the text, if at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "palimpsest/cache/geometry.h"
#include "palimpsest/cache/pages.h"
#include "palimpsest/cache/recall_pages.h"
#include "palimpsest/cache/view.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

class RecallTier {
 public:
  // `max_tokens`: of each head, rounded up to whole pages. `max_chosen`: of a choice of pages that is kept; 0: none is.
  RecallTier(const HeadGeometry& geometry, CacheType type, int max_tokens, int max_chosen = 0);
  RecallTier(const RecallTier& other);  // a copy of its bytes; throws Error or std::bad_alloc
  RecallTier& operator=(const RecallTier&) = delete;
  ~RecallTier();

  // Acquires the memory of `tokens` more of a head: that many calls of append() cannot fail. Throws Error or
  // std::bad_alloc; the tokens that the tier holds do not change.
  void reserve(int head, int tokens);
  // `key` [head_dim], `value` [value_dim] of the token at this position. Different heads: by different threads.
  // Requires: reserve().
  void append(int head, Position position, const float* key, const float* value) noexcept;
  void forget(Position from);  // all tokens at this position and later ones
  void clear() noexcept;

  RecallPages pages(int head) const;
  RecallChoice choice(int head);
  LayerView layout(int head) const { return layout_of(geometry_, type_, head); }  // of a page; without heads
  long long tokens(int head) const;                                               // that the tier holds
  bool empty() const;
  std::size_t bytes() const;  // of pages and positions
  // Upper bound of bytes() after so many tokens of each of `heads`; empty: of all.
  static std::size_t max_bytes(const HeadGeometry& geometry, CacheType type, int max_tokens, long long tokens,
                               int max_chosen = 0, const std::vector<bool>& heads = {});

 private:
  static LayerView layout_of(const HeadGeometry& geometry, CacheType type, int head);
  static std::vector<std::size_t> page_sizes(const HeadGeometry& geometry, CacheType type);  // each once
  PageId take(int head);
  struct Head {
    std::vector<PageId> pages;
    std::vector<std::uint16_t> present;
    std::vector<Position> position;  // [pages][kTile]
    long long written = 0;           // tokens, so far
    std::vector<int> choice;         // [max_chosen_]
    int chosen = -1;                 // RecallChoice::count
  };
  Head& at(int head) { return heads_[static_cast<std::size_t>(head)]; }
  const Head& at(int head) const { return heads_[static_cast<std::size_t>(head)]; }

  HeadGeometry geometry_;
  CacheType type_;
  long long max_pages_;  // of a head
  int max_chosen_;
  PagePool pool_;
  std::vector<Head> heads_;
};

}  // namespace palimpsest
