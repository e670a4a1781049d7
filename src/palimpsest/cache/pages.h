// Pages of bytes: one pool per layer shape, given to heads and taken back. Memory comes in slabs (huge pages where the
// system has them) and pages never move, so a kernel may hold their addresses for a step.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace palimpsest {

class PagePool {
 public:
  explicit PagePool(std::size_t page_bytes);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  std::byte* take();  // 64-byte aligned, contents undefined; throws Error when the system has no more
  void give_back(std::byte* page);

  std::size_t page_bytes() const { return page_bytes_; }
  std::size_t pages_in_use() const { return in_use_; }
  std::size_t bytes_in_use() const { return in_use_ * page_bytes_; }
  std::size_t bytes_peak() const { return peak_ * page_bytes_; }
  std::size_t bytes_reserved() const;  // slabs taken from the system

 private:
  struct Slab;
  std::size_t page_bytes_, in_use_ = 0, peak_ = 0;
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::vector<std::byte*> free_;
};

}  // namespace palimpsest
