// Pages of bytes: one pool for all pages of one size, given to heads and taken back. Memory comes in slabs (huge pages
// where the system has them) and goes back to the system when a slab is wholly empty; one empty slab is kept. Pages
// never move, so a kernel may hold their addresses for a step. A page may have several users, who only read it: who
// wants to write calls own() before. Not for several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace palimpsest {

class PagePool {
 public:
  explicit PagePool(std::size_t page_bytes);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  std::byte* take();                // 64-byte aligned, contents undefined; throws Error when the system has no more
  void share(std::byte* page);      // one user more
  void give_back(std::byte* page);  // one user less; without a user it is free
  // Its user's alone from now on: the page itself, or a new one in its place (copy-on-write), with its bytes if they
  // matter. Throws Error, unchanged, when the system has no more. A page that the other users give back to make room
  // for its copy needs none.
  std::byte* own(std::byte* page, bool bytes_matter = true);
  void reserve(std::size_t pages);  // the next so many take() cannot fail; throws Error

  // Before more than so many pages are in use, `relieve` is asked to give some back: again and again, until there is
  // room or it says false. Then the page is taken all the same: the limit is kept by those who promise pages.
  void limit(std::size_t pages, std::function<bool()> relieve);

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
  void add_slab();

  std::size_t page_bytes_, stride_, slab_bytes_, pages_in_slab_;
  std::size_t in_use_ = 0, peak_ = 0, copied_ = 0, empty_slabs_ = 0;
  std::vector<std::unique_ptr<Slab>> slabs_;  // by address
  std::size_t first_with_room_ = 0;           // no slab before it has a free page
  std::size_t limit_ = SIZE_MAX;
  std::function<bool()> relieve_;
};

}  // namespace palimpsest
