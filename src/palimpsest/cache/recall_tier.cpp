#include "palimpsest/cache/recall_tier.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace palimpsest {

// static
LayerView RecallTier::layout_of(const HeadGeometry& geometry, CacheType type, int head) {
  const LayerGeometry& layer = geometry.layer_geometry(head);
  return {.head_dim = layer.key_width,
          .value_dim = layer.value_width,
          .page_size = kTile,
          .key_type = type,
          .value_type = type};
}

// static
std::vector<std::size_t> RecallTier::page_sizes(const HeadGeometry& geometry, CacheType type) {
  std::vector<std::size_t> sizes;
  for (int head = 0; head < geometry.heads(); ++head)
    if (const std::size_t bytes = page_bytes(layout_of(geometry, type, head));
        std::ranges::find(sizes, bytes) == sizes.end())
      sizes.push_back(bytes);
  return sizes;
}

RecallTier::RecallTier(const HeadGeometry& geometry, CacheType type, int max_tokens, int max_chosen)
    : geometry_(geometry),
      type_(type),
      max_pages_((max_tokens + kTile - 1) / kTile),
      max_chosen_(static_cast<int>(std::min<long long>(max_chosen, max_pages_))),
      pool_(page_sizes(geometry, type)),
      heads_(static_cast<std::size_t>(geometry.heads())) {
  for (Head& h : heads_) h.choice.resize(static_cast<std::size_t>(max_chosen_));
}

RecallTier::RecallTier(const RecallTier& other)
    : geometry_(other.geometry_),
      type_(other.type_),
      max_pages_(other.max_pages_),
      max_chosen_(other.max_chosen_),
      pool_(page_sizes(geometry_, type_)),
      heads_(other.heads_) {
  for (std::size_t head = 0; head < heads_.size(); ++head)
    for (std::size_t page = 0; page < heads_[head].pages.size(); ++page) {
      PageId& copy = heads_[head].pages[page];
      copy = take(static_cast<int>(head));
      std::memcpy(pool_.address(copy), other.pool_.address(other.heads_[head].pages[page]), pool_.bytes_of(copy));
    }
}

PageId RecallTier::take(int head) {
  const std::size_t bytes = page_bytes(layout(head));
  int size = 0;
  while (pool_.page_bytes(size) != bytes) ++size;
  return pool_.take(size);
}

RecallTier::~RecallTier() {
  clear();
}

void RecallTier::reserve(int head, int tokens) {
  Head& h = at(head);
  const long long wanted = std::min((h.written + tokens + kTile - 1) / kTile, max_pages_);
  const auto pages = static_cast<std::size_t>(wanted);
  if (pages <= h.pages.size()) return;
  if (pages > h.pages.capacity()) {
    const std::size_t room = std::min(2 * pages, static_cast<std::size_t>(max_pages_));
    h.pages.reserve(room);
    h.present.reserve(room);
    h.position.reserve(room * kTile);
  }
  h.present.resize(pages);
  h.position.resize(pages * kTile);
  while (h.pages.size() < pages) h.pages.push_back(take(head));
}

void RecallTier::append(int head, Position position, const float* key, const float* value) noexcept {
  Head& h = at(head);
  const auto page = static_cast<std::size_t>(h.written / kTile % max_pages_);
  const auto lane = static_cast<int>(h.written++ % kTile);
  assert(page < h.pages.size() && "reserve() first");
  const LayerView layout = this->layout(head);
  std::byte* const to = pool_.address(h.pages[page]);
  if (lane == 0) {
    std::memset(to, 0, page_bytes(layout));
    h.present[page] = 0;
  }
  store_key(layout, to, lane, key);
  store_value(layout, to, lane, value);
  h.present[page] = static_cast<std::uint16_t>(h.present[page] | 1u << lane);
  h.position[page * kTile + static_cast<std::size_t>(lane)] = position;
}

void RecallTier::forget(Position from) {
  for (Head& h : heads_) {
    h.chosen = -1;
    for (std::size_t slot = 0; slot < h.position.size(); ++slot)
      if (h.position[slot] >= from)
        h.present[slot / kTile] = static_cast<std::uint16_t>(h.present[slot / kTile] & ~(1u << slot % kTile));
  }
}

void RecallTier::clear() noexcept {
  for (Head& h : heads_) {
    for (const PageId page : h.pages) pool_.release(page);
    auto choice = std::move(h.choice);
    h = Head();
    h.choice = std::move(choice);
  }
}

RecallPages RecallTier::pages(int head) const {
  const Head& h = at(head);
  return {.page = pool_.table(h.pages),
          .present = h.present.data(),
          .pages = static_cast<int>(std::min<long long>((h.written + kTile - 1) / kTile, max_pages_))};
}

RecallChoice RecallTier::choice(int head) {
  Head& h = at(head);
  return h.choice.empty() ? RecallChoice{} : RecallChoice{h.choice.data(), &h.chosen};
}

long long RecallTier::tokens(int head) const {
  const RecallPages all = pages(head);
  long long count = 0;
  for (int page = 0; page < all.pages; ++page) count += std::popcount(all.present[page]);
  return count;
}

bool RecallTier::empty() const {
  return std::ranges::all_of(heads_, [](const Head& h) { return h.written == 0; });
}

std::size_t RecallTier::bytes() const {
  std::size_t sum = pool_.bytes_in_use();
  for (const Head& h : heads_)
    sum += h.pages.capacity() * sizeof(PageId) + h.present.capacity() * sizeof(std::uint16_t) +
           h.position.capacity() * sizeof(Position) + h.choice.capacity() * sizeof(int);
  return sum;
}

std::size_t RecallTier::max_bytes(const HeadGeometry& geometry, CacheType type, int max_tokens, long long tokens,
                                  int max_chosen, const std::vector<bool>& heads) {
  const auto pages_of = [](long long count) { return static_cast<std::size_t>((count + kTile - 1) / kTile); };
  const std::size_t pages = std::min(pages_of(max_tokens), pages_of(tokens));
  const std::size_t room = std::min(pages_of(max_tokens), 2 * pages);  // arrays grow by doubling
  const std::size_t chosen = std::min(pages_of(max_tokens), static_cast<std::size_t>(max_chosen));
  std::size_t sum = static_cast<std::size_t>(geometry.heads()) * chosen * sizeof(int);
  for (int head = 0; head < geometry.heads(); ++head)
    if (heads.empty() || heads[static_cast<std::size_t>(head)])
      sum += room * (sizeof(PageId) + sizeof(std::uint16_t) + kTile * sizeof(Position)) +
             pages * page_bytes(layout_of(geometry, type, head));
  return sum;
}

}  // namespace palimpsest
