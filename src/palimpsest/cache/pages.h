// Pages of bytes: one pool for all pages of one size, given to heads and taken back. Memory comes in slabs (huge pages
// where the system has them) and goes back to the system when a slab is wholly empty; one empty slab is kept. Pages
// never move, so a kernel may hold their addresses for a step. A page may have several users, who only read it: who
// wants to write calls own() before. Not for several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace palimpsest {

class PagePool {
 public:
  explicit PagePool(std::size_t page_bytes);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  std::byte* take();            // 64-byte aligned, contents undefined; throws Error when the system has no more
  void share(std::byte* page);  // one user more
  void give_back(std::byte* page) noexcept;  // one user less; without a user it is free
  // Copy-on-write in two steps. take_for_copy: a page to copy a shared one to, or nullptr if `page` has no other user;
  // throws as take() does. Other users that give `page` back to make room spare the copy. replace: what a user of
  // `page` does with it: its bytes go to `copy` if they matter, and `page` loses this user.
  std::byte* take_for_copy(const std::byte* page);
  void replace(std::byte* page, std::byte* copy, bool bytes_matter) noexcept;
  // Both: `page` itself or its copy, which has no other user. Throws as take() does, unchanged.
  std::byte* own(std::byte* page, bool bytes_matter = true);
  void reserve(std::size_t pages);  // the next so many take() cannot fail; throws Error

  // Before more than so many pages are in use, `relieve` is asked to give some back: again and again, until there is
  // room or it says false. Then the page is taken all the same: the limit is kept by those who promise pages.
  void limit(std::size_t pages, std::function<bool()> relieve);
  // For tests: called before each page is taken and before each slab is mapped. What it throws is thrown, and the pool
  // stays as it was.
  void before_acquisition(std::function<void()> hook) { before_acquisition_ = std::move(hook); }

  std::size_t page_bytes() const { return page_bytes_; }
  std::size_t pages_in_use() const { return in_use_; }  // however many users a page has
  std::size_t pages_copied() const { return copied_; }  // by own(), so far
  std::size_t bytes_in_use() const { return in_use_ * page_bytes_; }
  std::size_t bytes_peak() const { return peak_ * page_bytes_; }
  std::size_t bytes_reserved() const { return slabs_.size() * slab_bytes_; }  // slabs taken from the system

 private:
  struct Slab;
  std::size_t slab_of(const std::byte* page) const;
  std::uint32_t& users_of(const std::byte* page);
  void acquire() const {
    if (before_acquisition_) before_acquisition_();
  }
  void add_slab();

  std::size_t page_bytes_, stride_, slab_bytes_, pages_in_slab_;
  std::size_t in_use_ = 0, peak_ = 0, copied_ = 0, empty_slabs_ = 0;
  std::vector<std::unique_ptr<Slab>> slabs_;  // by address
  std::size_t first_with_room_ = 0;           // no slab before it has a free page
  std::size_t limit_ = SIZE_MAX;
  std::function<bool()> relieve_;
  std::function<void()> before_acquisition_;
};

}  // namespace palimpsest
