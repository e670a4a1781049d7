#include "palimpsest/cache/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kPagesPerSlab = 8;  // at the least: bounds what a slab's end wastes

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Memory that starts at a multiple of kHugePage, or nullptr.
std::byte* map(std::size_t bytes) {
  void* raw = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(raw);
  const std::size_t before =
      round_up(reinterpret_cast<std::uintptr_t>(start), kHugePage) - reinterpret_cast<std::uintptr_t>(start);
  if (before > 0) munmap(start, before);
  if (before < kHugePage) munmap(start + before + bytes, kHugePage - before);
#ifdef MADV_HUGEPAGE
  madvise(start + before, bytes, MADV_HUGEPAGE);  // a wish: small pages will do
#endif
  return start + before;
}

}  // namespace

struct PagePool::Slab {
  explicit Slab(std::size_t pages) : free(pages), users(pages, 0) {
    for (std::size_t i = 0; i < pages; ++i) free[i] = static_cast<std::uint32_t>(pages - 1 - i);
  }
  ~Slab() {
    if (start != nullptr) munmap(start, bytes);
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  std::byte* start = nullptr;
  std::size_t bytes = 0;
  std::vector<std::uint32_t> free;   // indices of pages; the last is the next to be taken
  std::vector<std::uint32_t> users;  // [page]
};

PagePool::PagePool(std::size_t page_bytes) : page_bytes_(page_bytes), stride_(round_up(page_bytes, kAlignment)) {
  assert(page_bytes > 0);
  if (page_bytes > SIZE_MAX / 4 / kPagesPerSlab)
    fail("a cache page of {} bytes is too large: lower the page size", page_bytes);
  slab_bytes_ = round_up(stride_ * kPagesPerSlab, kHugePage);
  pages_in_slab_ = slab_bytes_ / stride_;
}

PagePool::~PagePool() {
  assert(in_use_ == 0);
}

void PagePool::add_slab() {
  acquire();
  auto slab = std::make_unique<Slab>(pages_in_slab_);
  if (slabs_.size() == slabs_.capacity()) slabs_.reserve(2 * slabs_.size() + 1);
  std::byte* const start = map(slab_bytes_);
  if (start == nullptr)
    fail("the system gave no memory for {} KiB more of cache (it holds {} KiB): lower the budget or the context",
         slab_bytes_ >> 10, bytes_reserved() >> 10);
  slab->start = start;
  slab->bytes = slab_bytes_;
  const auto place = std::ranges::upper_bound(slabs_, start, {}, [](const auto& s) { return s->start; });
  first_with_room_ = std::min(first_with_room_, static_cast<std::size_t>(place - slabs_.begin()));
  slabs_.insert(place, std::move(slab));
  ++empty_slabs_;
}

std::size_t PagePool::slab_of(const std::byte* page) const {
  const auto after = std::ranges::upper_bound(slabs_, page, {}, [](const auto& s) { return s->start; });
  assert(after != slabs_.begin());
  return static_cast<std::size_t>(after - slabs_.begin()) - 1;
}

std::uint32_t& PagePool::users_of(const std::byte* page) {
  Slab& slab = *slabs_[slab_of(page)];
  const auto offset = static_cast<std::size_t>(page - slab.start);
  assert(offset < slab.bytes && offset % stride_ == 0);
  std::uint32_t& users = slab.users[offset / stride_];
  assert(users > 0);
  return users;
}

void PagePool::limit(std::size_t pages, std::function<bool()> relieve) {
  limit_ = pages;
  relieve_ = std::move(relieve);
}

void PagePool::reserve(std::size_t pages) {
  while (in_use_ + pages > limit_ && relieve_()) {
  }
  while (slabs_.size() * pages_in_slab_ < in_use_ + pages) add_slab();
}

// The first slab with room: pages gather in few slabs, the others empty.
std::byte* PagePool::take() {
  acquire();
  reserve(1);
  while (slabs_[first_with_room_]->free.empty()) ++first_with_room_;
  Slab& slab = *slabs_[first_with_room_];
  if (slab.free.size() == pages_in_slab_) --empty_slabs_;
  std::byte* page = slab.start + stride_ * slab.free.back();
  slab.users[slab.free.back()] = 1;
  slab.free.pop_back();
  peak_ = std::max(peak_, ++in_use_);
  return page;
}

void PagePool::share(std::byte* page) {
  ++users_of(page);
}

std::byte* PagePool::take_for_copy(const std::byte* page) {
  while (users_of(page) > 1 && in_use_ >= limit_ && relieve_()) {
  }
  return users_of(page) == 1 ? nullptr : take();
}

void PagePool::replace(std::byte* page, std::byte* copy, bool bytes_matter) noexcept {
  if (bytes_matter) std::memcpy(copy, page, page_bytes_);
  give_back(page);
  ++copied_;
}

std::byte* PagePool::own(std::byte* page, bool bytes_matter) {
  std::byte* const copy = take_for_copy(page);
  if (copy == nullptr) return page;
  replace(page, copy, bytes_matter);
  return copy;
}

void PagePool::give_back(std::byte* page) noexcept {
  if (--users_of(page) > 0) return;
  const std::size_t place = slab_of(page);
  Slab& slab = *slabs_[place];
  slab.free.push_back(static_cast<std::uint32_t>(static_cast<std::size_t>(page - slab.start) / stride_));
  first_with_room_ = std::min(first_with_room_, place);
  --in_use_;
  if (slab.free.size() < pages_in_slab_) return;
  if (empty_slabs_ == 0) {
    ++empty_slabs_;
    return;
  }
  std::erase_if(slabs_, [&](const auto& s) { return s.get() == &slab; });
  first_with_room_ = 0;
}

}  // namespace palimpsest
