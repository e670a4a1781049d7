// A pool of pages of one size, or of a few (layers whose heads differ in width). A page is an id; its address is base +
// id x stride. The pool reserves one address range and commits memory slab by slab (huge pages where the system has
// them). The pages of a slab have one size; empty slabs but one of each size are returned to the system, and may get
// another size:
//
//   addresses  |  slab 0  |  slab 1  |  slab 2  |  slab 3  | ...        reserved: no memory
//   memory     |  pages   |   none   |  pages   |   none   | ...
//   ids          0 1 .. n   n+1 ..                                      of a page of several strides: its first
//
// Pages never move, so a kernel may hold their addresses for a step. A page with several users is read-only: call
// make_exclusive() before writing. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "palimpsest/cache/view.h"
#include "palimpsest/core/address_range.h"

namespace palimpsest {

class PagePool {
 public:
  explicit PagePool(std::size_t page_bytes) : PagePool(std::vector<std::size_t>{page_bytes}) {}
  // Bytes of a page of each size, each once.
  explicit PagePool(const std::vector<std::size_t>& sizes);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  PageId take(int size = 0);           // of sizes()[size]; contents undefined; throws Error when out of memory
  void share(PageId page);             // adds a user
  void release(PageId page) noexcept;  // removes a user; without users the page is free
  // Copy-on-write in two steps. take_for_copy returns a page to copy a shared one to, or kNoPage if `page` has no other
  // user (any more: the reclaim callback may release it); throws as take() does. replace copies the bytes to `copy` if
  // `bytes_matter`, and removes a user of `page`.
  PageId take_for_copy(PageId page);
  void replace(PageId page, PageId copy, bool bytes_matter) noexcept;
  // Both steps: returns `page` or its copy, which has no other user. Throws as take() does, unchanged.
  PageId make_exclusive(PageId page, bool bytes_matter = true);
  // The next `pages` calls of take() of each size cannot fail; throws Error. Requires: a number for each size.
  void reserve(std::span<const std::size_t> pages);
  void reserve(std::size_t pages) { reserve(std::span(&pages, 1)); }  // of a pool of one size

  // Address of page 0, and bytes from an id to the next, a multiple of 64. The base is nullptr until the first page is
  // taken, and constant from then on.
  std::byte* base() const { return range_.base(); }
  std::size_t stride() const { return stride_; }
  std::byte* address(PageId page) const { return base() + static_cast<std::size_t>(page) * stride_; }
  BlockTable table(const std::vector<PageId>& pages) const { return {pages.data(), base(), stride_}; }

  // Before pages of more than `bytes` are in use, calls `reclaim` until it has released enough or returns false. The
  // page is taken in either case: admission control enforces the limit. If set before the first page is taken, it also
  // bounds the address range, to twice as many bytes (of more than two sizes: as many times).
  void set_limit(std::size_t bytes, std::function<bool()> reclaim);
  // For tests: called before each page is taken and before each slab is committed. If it throws, the pool is unchanged.
  void before_acquisition(std::function<void()> hook) { before_acquisition_ = std::move(hook); }

  std::size_t sizes() const { return sizes_.size(); }
  std::size_t page_bytes(int size = 0) const { return sizes_[static_cast<std::size_t>(size)].bytes; }
  std::size_t bytes_of(PageId page) const { return sizes_[slabs_[slab_of(page)].size].bytes; }  // Requires: it is taken
  std::size_t pages_in_use() const { return in_use_; }                                          // a shared page once
  std::size_t pages_copied() const { return copied_; }                                          // copy-on-write, so far
  std::size_t bytes_copied() const { return bytes_copied_; }
  std::size_t bytes_in_use() const { return bytes_in_use_; }
  std::size_t bytes_peak() const { return bytes_peak_; }
  std::size_t bytes_committed() const { return committed_ * slab_bytes_; }  // of committed slabs
  std::size_t bytes_of_range() const { return range_.bytes(); }

 private:
  struct Size {
    std::size_t bytes, ids, pages_in_slab;  // of a page; ids (strides) that it takes
    std::size_t in_use = 0, committed = 0, empty_slabs = 0;
    std::size_t first_with_room = 0;  // no slab before it has a free page of this size
  };
  struct Slab {
    bool committed = false;
    std::uint32_t size = 0;
    PageId first_free = kNoPage;  // the next to be taken
    std::uint32_t free = 0;
  };
  std::size_t slab_of(PageId page) const { return static_cast<std::size_t>(page) / ids_in_slab_; }
  std::uint32_t& users_of(PageId page);
  void acquire() const {
    if (before_acquisition_) before_acquisition_();
  }
  void make_room(std::size_t bytes);
  void add_slabs(std::size_t size, std::size_t pages);
  void reserve_addresses();
  void add_slab(std::size_t size);
  void remove_slab(std::size_t slab) noexcept;

  std::vector<Size> sizes_;
  std::size_t stride_, slab_bytes_, ids_in_slab_;
  AddressRange range_;
  std::size_t in_use_ = 0, copied_ = 0, committed_ = 0;  // pages, pages, slabs
  std::size_t bytes_in_use_ = 0, bytes_peak_ = 0, bytes_copied_ = 0;
  std::vector<Slab> slabs_;            // up to the last that was ever committed
  std::vector<std::uint32_t> users_;   // [id]
  std::vector<PageId> next_free_;      // [id] in the same slab
  std::size_t first_uncommitted_ = 0;  // all slabs before it are committed
  std::size_t limit_ = SIZE_MAX;       // bytes
  std::function<bool()> reclaim_;
  std::function<void()> before_acquisition_;
};

}  // namespace palimpsest
