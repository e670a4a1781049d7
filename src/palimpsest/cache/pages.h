// Pages of bytes: one pool for all pages of one size, given to heads and taken back. A page is an id; its address is
// base + id x stride. The pool reserves one range of addresses and gives it memory slab by slab (huge pages where the
// system has them); memory goes back to the system when a slab is wholly empty; one empty slab is kept:
//
//   addresses  |  slab 0  |  slab 1  |  slab 2  |  slab 3  | ...        reserved: no memory
//   memory     |  pages   |   none   |  pages   |   none   | ...
//   ids          0 1 .. n   n+1 ..
//
// Pages never move, so a kernel may hold their addresses for a step. A page may have several users, who only read it:
// who wants to write calls own() before. Not for several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "palimpsest/cache/address_range.h"
#include "palimpsest/cache/view.h"

namespace palimpsest {

class PagePool {
 public:
  explicit PagePool(std::size_t page_bytes);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  PageId take();                         // contents undefined; throws Error when the system has no more memory
  void share(PageId page);               // one user more
  void give_back(PageId page) noexcept;  // one user less; without a user it is free
  // Copy-on-write in two steps. take_for_copy: a page to copy a shared one to, or kNoPage if `page` has no other user;
  // throws as take() does. Other users that give `page` back to make room spare the copy. replace: what a user of
  // `page` does with it: its bytes go to `copy` if they matter, and `page` loses this user.
  PageId take_for_copy(PageId page);
  void replace(PageId page, PageId copy, bool bytes_matter) noexcept;
  // Both: `page` itself or its copy, which has no other user. Throws as take() does, unchanged.
  PageId make_exclusive(PageId page, bool bytes_matter = true);
  void reserve(std::size_t pages);  // the next so many take() cannot fail; throws Error

  // Of page 0, and from one page to the next: a multiple of 64. The base is nullptr until the first page is taken, and
  // the same from then on.
  std::byte* base() const { return range_.base(); }
  std::size_t stride() const { return stride_; }
  std::byte* address(PageId page) const { return base() + static_cast<std::size_t>(page) * stride_; }
  BlockTable table(const std::vector<PageId>& pages) const { return {pages.data(), base(), stride_}; }

  // Before more than so many pages are in use, `relieve` is asked to give some back: again and again, until there is
  // room or it says false. Then the page is taken all the same: the limit is kept by those who promise pages. Before
  // the first page is taken it bounds the addresses, too: twice as many pages.
  void limit(std::size_t pages, std::function<bool()> relieve);
  // For tests: called before each page is taken and before each slab gets memory. What it throws is thrown, and the
  // pool stays as it was.
  void before_acquisition(std::function<void()> hook) { before_acquisition_ = std::move(hook); }

  std::size_t page_bytes() const { return page_bytes_; }
  std::size_t pages_in_use() const { return in_use_; }  // however many users a page has
  std::size_t pages_copied() const { return copied_; }  // by own(), so far
  std::size_t bytes_in_use() const { return in_use_ * page_bytes_; }
  std::size_t bytes_peak() const { return peak_ * page_bytes_; }
  std::size_t bytes_reserved() const { return committed_ * slab_bytes_; }  // slabs that have memory
  std::size_t bytes_of_addresses() const { return range_.bytes(); }

 private:
  struct Slab {
    bool committed = false;
    PageId first_free = kNoPage;  // the next to be taken
    std::uint32_t free = 0;
  };
  std::size_t slab_of(PageId page) const { return static_cast<std::size_t>(page) / pages_in_slab_; }
  std::uint32_t& users_of(PageId page);
  void acquire() const {
    if (before_acquisition_) before_acquisition_();
  }
  void reserve_addresses();
  void add_slab();
  void remove_slab(std::size_t slab) noexcept;

  std::size_t page_bytes_, stride_, slab_bytes_, pages_in_slab_;
  AddressRange range_;
  std::size_t in_use_ = 0, peak_ = 0, copied_ = 0, committed_ = 0, empty_slabs_ = 0;
  std::vector<Slab> slabs_;            // up to the last that ever had memory
  std::vector<std::uint32_t> users_;   // [id]
  std::vector<PageId> next_free_;      // [id] of the same slab
  std::size_t first_with_room_ = 0;    // no slab before it has a free page
  std::size_t first_uncommitted_ = 0;  // all slabs before it have memory
  std::size_t limit_ = SIZE_MAX;
  std::function<bool()> relieve_;
  std::function<void()> before_acquisition_;
};

}  // namespace palimpsest
