// An address range: reserved once, memory committed in parts, in huge pages. Nothing ever moves.
#pragma once

#include <atomic>
#include <cstddef>

namespace palimpsest {

class AddressRange {
 public:
  static constexpr std::size_t kBlock = std::size_t{2} << 20;  // a huge page: the unit of commit and decommit

  AddressRange() = default;
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  // Reserves up to `bytes` of addresses, at least `min`; halves the request where the system limits it (ulimit -v).
  // Uses no memory. false: not even `min` is available.
  bool reserve(std::size_t bytes, std::size_t min) noexcept;
  // Commits memory for the blocks of kBlock that [begin, end) touches, in huge pages where the system has them.
  // Committed blocks stay as they are. false: out of memory.
  bool commit(std::size_t begin, std::size_t end) noexcept;
  // Returns the memory of these blocks to the system. `begin` and `end` are multiples of kBlock.
  void decommit(std::size_t begin, std::size_t end) noexcept;

  // A multiple of kBlock; nullptr: nothing is reserved. Other threads may ask while reserve() runs.
  std::byte* base() const { return base_.load(std::memory_order_acquire); }
  std::size_t bytes() const { return bytes_; }  // a multiple of kBlock

  // Bytes to reserve where no limit is set: more than the machine's memory.
  static std::size_t max_bytes();

 private:
  std::atomic<std::byte*> base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace palimpsest
