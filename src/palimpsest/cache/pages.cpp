#include "palimpsest/cache/pages.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPagesPerSlab = 8;                  // min, so that few slabs are partly full
constexpr std::size_t kAddresses = std::size_t{1} << 40;  // max, of a pool without a limit
constexpr std::size_t kMaxPages = std::size_t{1} << 31;   // the range of PageId

}  // namespace

PagePool::PagePool(const std::vector<std::size_t>& sizes) {
  assert(!sizes.empty());
  stride_ = 0;
  std::size_t largest = 0;
  for (const std::size_t bytes : sizes) {
    assert(bytes > 0);
    if (bytes > SIZE_MAX / 4 / kPagesPerSlab) fail("a cache page of {} bytes is too large: lower the page size", bytes);
    const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    stride_ = std::gcd(stride_, rounded);
    largest = std::max(largest, rounded);
  }
  // A slab has at least AddressRange::kBlock bytes, so that no block spans three slabs.
  slab_bytes_ = std::max(kPagesPerSlab, (AddressRange::kBlock + largest - 1) / largest) * largest;
  ids_in_slab_ = slab_bytes_ / stride_;
  for (const std::size_t bytes : sizes) {
    const std::size_t ids = (bytes + stride_ - 1) / stride_;
    sizes_.push_back({.bytes = bytes, .ids = ids, .pages_in_slab = ids_in_slab_ / ids});
  }
}

PagePool::~PagePool() {
  assert(in_use_ == 0);
}

void PagePool::reserve_addresses() {
  if (range_.base() != nullptr) return;
  std::size_t slabs = std::min(AddressRange::max_bytes() / slab_bytes_, kMaxPages / ids_in_slab_);
  if (limit_ == SIZE_MAX) {
    slabs = std::min(slabs, kAddresses / slab_bytes_);
  } else {
    std::size_t least = SIZE_MAX;  // bytes of a slab's pages
    for (const Size& size : sizes_) least = std::min(least, size.pages_in_slab * size.bytes);
    slabs = std::min(slabs, limit_ / least * std::max<std::size_t>(2, sizes_.size()) + 2 * sizes_.size());
  }
  if (!range_.reserve(std::max<std::size_t>(slabs, 1) * slab_bytes_, slab_bytes_))
    fail(
        "the system refused {} KiB more of addresses for the cache: lower the budget or the context, or "
        "raise the limit of virtual memory (ulimit -v)",
        slab_bytes_ >> 10);
}

void PagePool::add_slab(std::size_t size_index) {
  acquire();
  reserve_addresses();
  while (first_uncommitted_ < slabs_.size() && slabs_[first_uncommitted_].committed) ++first_uncommitted_;
  const std::size_t index = first_uncommitted_, first = index * ids_in_slab_, begin = index * slab_bytes_;
  if (slab_bytes_ > range_.bytes() - begin)
    fail(
        "the cache has used up its {} KiB of addresses: lower the budget or the context, or raise the limit of virtual "
        "memory (ulimit -v)",
        range_.bytes() >> 10);
  if (index == slabs_.size()) {
    users_.resize(first + ids_in_slab_, 0);
    next_free_.resize(first + ids_in_slab_);
    slabs_.emplace_back();
  }
  if (!range_.commit(begin, begin + slab_bytes_))
    fail("the system refused {} KiB more of memory for the cache (it holds {} KiB): lower the budget or the context",
         slab_bytes_ >> 10, bytes_committed() >> 10);
  Size& size = sizes_[size_index];
  for (std::size_t i = 0; i < size.pages_in_slab; ++i)
    next_free_[first + i * size.ids] =
        i + 1 < size.pages_in_slab ? static_cast<PageId>(first + (i + 1) * size.ids) : kNoPage;
  slabs_[index] = {.committed = true,
                   .size = static_cast<std::uint32_t>(size_index),
                   .first_free = static_cast<PageId>(first),
                   .free = static_cast<std::uint32_t>(size.pages_in_slab)};
  size.first_with_room = std::min(size.first_with_room, index);
  ++committed_;
  ++size.committed;
  ++size.empty_slabs;
}

// Keeps blocks that a neighbouring committed slab also covers.
void PagePool::remove_slab(std::size_t index) noexcept {
  const auto committed = [&](std::size_t slab) { return slab < slabs_.size() && slabs_[slab].committed; };
  --sizes_[slabs_[index].size].committed;
  slabs_[index] = {};
  std::size_t begin = index * slab_bytes_, end = begin + slab_bytes_;
  constexpr std::size_t block = AddressRange::kBlock;
  begin = (index > 0 && committed(index - 1) ? begin + block - 1 : begin) / block * block;
  end = (committed(index + 1) ? end : end + block - 1) / block * block;
  range_.decommit(begin, end);
  first_uncommitted_ = std::min(first_uncommitted_, index);
  --committed_;
}

std::uint32_t& PagePool::users_of(PageId page) {
  assert(page >= 0 && static_cast<std::size_t>(page) < users_.size());
  std::uint32_t& users = users_[static_cast<std::size_t>(page)];
  assert(users > 0);
  return users;
}

void PagePool::set_limit(std::size_t bytes, std::function<bool()> reclaim) {
  limit_ = bytes;
  reclaim_ = std::move(reclaim);
}

void PagePool::make_room(std::size_t bytes) {
  while (bytes_in_use_ + bytes > limit_ && reclaim_()) {
  }
}

void PagePool::add_slabs(std::size_t size, std::size_t pages) {
  while (sizes_[size].committed * sizes_[size].pages_in_slab < sizes_[size].in_use + pages) add_slab(size);
}

void PagePool::reserve(std::span<const std::size_t> pages) {
  assert(pages.size() == sizes_.size());
  std::size_t bytes = 0;
  for (std::size_t size = 0; size < pages.size(); ++size) bytes += pages[size] * sizes_[size].bytes;
  make_room(bytes);
  for (std::size_t size = 0; size < pages.size(); ++size) add_slabs(size, pages[size]);
}

// Takes from the first slab with a free page, so that pages concentrate in few slabs and the others become empty.
PageId PagePool::take(int size_index) {
  acquire();
  const auto index = static_cast<std::size_t>(size_index);
  Size& size = sizes_[index];
  make_room(size.bytes);
  add_slabs(index, 1);
  while (slabs_[size.first_with_room].free == 0 || slabs_[size.first_with_room].size != index) ++size.first_with_room;
  Slab& slab = slabs_[size.first_with_room];
  if (slab.free-- == size.pages_in_slab) --size.empty_slabs;
  const PageId page = slab.first_free;
  slab.first_free = next_free_[static_cast<std::size_t>(page)];
  users_[static_cast<std::size_t>(page)] = 1;
  ++in_use_;
  ++size.in_use;
  bytes_in_use_ += size.bytes;
  bytes_peak_ = std::max(bytes_peak_, bytes_in_use_);
  return page;
}

void PagePool::share(PageId page) {
  ++users_of(page);
}

PageId PagePool::take_for_copy(PageId page) {
  const std::size_t bytes = bytes_of(page);
  while (users_of(page) > 1 && bytes_in_use_ + bytes > limit_ && reclaim_()) {
  }
  return users_of(page) == 1 ? kNoPage : take(static_cast<int>(slabs_[slab_of(page)].size));
}

void PagePool::replace(PageId page, PageId copy, bool bytes_matter) noexcept {
  const std::size_t bytes = bytes_of(page);
  if (bytes_matter) std::memcpy(address(copy), address(page), bytes);
  release(page);
  ++copied_;
  bytes_copied_ += bytes;
}

PageId PagePool::make_exclusive(PageId page, bool bytes_matter) {
  const PageId copy = take_for_copy(page);
  if (copy == kNoPage) return page;
  replace(page, copy, bytes_matter);
  return copy;
}

void PagePool::release(PageId page) noexcept {
  if (--users_of(page) > 0) return;
  const std::size_t index = slab_of(page);
  Slab& slab = slabs_[index];
  Size& size = sizes_[slab.size];
  next_free_[static_cast<std::size_t>(page)] = slab.first_free;
  slab.first_free = page;
  size.first_with_room = std::min(size.first_with_room, index);
  --in_use_;
  --size.in_use;
  bytes_in_use_ -= size.bytes;
  if (++slab.free < size.pages_in_slab) return;
  if (size.empty_slabs == 0)
    ++size.empty_slabs;
  else
    remove_slab(index);
}

}  // namespace palimpsest
