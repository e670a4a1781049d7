// Addresses that one cache has for itself: reserved at once, given memory part by part. Nothing ever moves.
#pragma once

#include <cstddef>

namespace palimpsest {

class AddressRange {
 public:
  static constexpr std::size_t kBlock = std::size_t{2} << 20;  // a huge page: memory comes and goes in multiples

  AddressRange() = default;
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  // Up to `bytes` addresses, at least `least`: half as many, and so on, where the system limits them (ulimit -v). They
  // cost no memory. false: not even `least`.
  bool reserve(std::size_t bytes, std::size_t min) noexcept;
  // Memory for the blocks of kBlock that [begin, end) touches, in huge pages where the system has them; those that have
  // some keep it. false: the system has no more.
  bool commit(std::size_t begin, std::size_t end) noexcept;
  // Gives the memory of these blocks back. `begin` and `end` are multiples of kBlock.
  void decommit(std::size_t begin, std::size_t end) noexcept;

  std::byte* base() const { return base_; }     // a multiple of kBlock; nullptr: nothing is reserved
  std::size_t bytes() const { return bytes_; }  // a multiple of kBlock

  // What to reserve for memory that nobody limits: more than the machine has.
  static std::size_t enough();

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace palimpsest
