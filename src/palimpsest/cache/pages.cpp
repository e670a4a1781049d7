#include "palimpsest/cache/pages.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPagesPerSlab = 8;                  // min, so that few slabs are partly full
constexpr std::size_t kAddresses = std::size_t{1} << 40;  // max, of a pool without a limit
constexpr std::size_t kMaxPages = std::size_t{1} << 31;   // the range of PageId

}  // namespace

PagePool::PagePool(std::size_t page_bytes)
    : page_bytes_(page_bytes), stride_((page_bytes + kAlignment - 1) / kAlignment * kAlignment) {
  assert(page_bytes > 0);
  if (page_bytes > SIZE_MAX / 4 / kPagesPerSlab)
    fail("a cache page of {} bytes is too large: lower the page size", page_bytes);
  // A slab has at least AddressRange::kBlock bytes, so that no block spans three slabs.
  pages_in_slab_ = std::max(kPagesPerSlab, (AddressRange::kBlock + stride_ - 1) / stride_);
  slab_bytes_ = pages_in_slab_ * stride_;
}

PagePool::~PagePool() {
  assert(in_use_ == 0);
}

void PagePool::reserve_addresses() {
  if (range_.base() != nullptr) return;
  std::size_t slabs = std::min(AddressRange::max_bytes() / slab_bytes_, kMaxPages / pages_in_slab_);
  if (limit_ == SIZE_MAX)
    slabs = std::min(slabs, kAddresses / slab_bytes_);
  else
    slabs = std::min(slabs, limit_ / pages_in_slab_ * 2 + 2);
  if (!range_.reserve(std::max<std::size_t>(slabs, 1) * slab_bytes_, slab_bytes_))
    fail(
        "the system refused {} KiB more of addresses for the cache: lower the budget or the context, or "
        "raise the limit of virtual memory (ulimit -v)",
        slab_bytes_ >> 10);
}

void PagePool::add_slab() {
  acquire();
  reserve_addresses();
  while (first_uncommitted_ < slabs_.size() && slabs_[first_uncommitted_].committed) ++first_uncommitted_;
  const std::size_t index = first_uncommitted_, first = index * pages_in_slab_, begin = index * slab_bytes_;
  if (slab_bytes_ > range_.bytes() - begin)
    fail(
        "the cache has used up its {} KiB of addresses: lower the budget or the context, or raise the limit of virtual "
        "memory (ulimit -v)",
        range_.bytes() >> 10);
  if (index == slabs_.size()) {
    users_.resize(first + pages_in_slab_, 0);
    next_free_.resize(first + pages_in_slab_);
    slabs_.emplace_back();
  }
  if (!range_.commit(begin, begin + slab_bytes_))
    fail("the system refused {} KiB more of memory for the cache (it holds {} KiB): lower the budget or the context",
         slab_bytes_ >> 10, bytes_committed() >> 10);
  for (std::size_t page = first; page < first + pages_in_slab_; ++page)
    next_free_[page] = page + 1 < first + pages_in_slab_ ? static_cast<PageId>(page + 1) : kNoPage;
  slabs_[index] = {true, static_cast<PageId>(first), static_cast<std::uint32_t>(pages_in_slab_)};
  first_with_room_ = std::min(first_with_room_, index);
  ++committed_;
  ++empty_slabs_;
}

// Keeps blocks that a neighbouring committed slab also covers.
void PagePool::remove_slab(std::size_t index) noexcept {
  const auto committed = [&](std::size_t slab) { return slab < slabs_.size() && slabs_[slab].committed; };
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

void PagePool::set_limit(std::size_t pages, std::function<bool()> reclaim) {
  limit_ = pages;
  reclaim_ = std::move(reclaim);
}

void PagePool::reserve(std::size_t pages) {
  while (in_use_ + pages > limit_ && reclaim_()) {
  }
  while (committed_ * pages_in_slab_ < in_use_ + pages) add_slab();
}

// Takes from the first slab with a free page, so that pages concentrate in few slabs and the others become empty.
PageId PagePool::take() {
  acquire();
  reserve(1);
  while (slabs_[first_with_room_].free == 0) ++first_with_room_;
  Slab& slab = slabs_[first_with_room_];
  if (slab.free-- == pages_in_slab_) --empty_slabs_;
  const PageId page = slab.first_free;
  slab.first_free = next_free_[static_cast<std::size_t>(page)];
  users_[static_cast<std::size_t>(page)] = 1;
  peak_ = std::max(peak_, ++in_use_);
  return page;
}

void PagePool::share(PageId page) {
  ++users_of(page);
}

PageId PagePool::take_for_copy(PageId page) {
  while (users_of(page) > 1 && in_use_ >= limit_ && reclaim_()) {
  }
  return users_of(page) == 1 ? kNoPage : take();
}

void PagePool::replace(PageId page, PageId copy, bool bytes_matter) noexcept {
  if (bytes_matter) std::memcpy(address(copy), address(page), page_bytes_);
  release(page);
  ++copied_;
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
  next_free_[static_cast<std::size_t>(page)] = slab.first_free;
  slab.first_free = page;
  first_with_room_ = std::min(first_with_room_, index);
  --in_use_;
  if (++slab.free < pages_in_slab_) return;
  if (empty_slabs_ == 0)
    ++empty_slabs_;
  else
    remove_slab(index);
}

}  // namespace palimpsest
