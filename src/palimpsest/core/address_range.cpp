#include "palimpsest/core/address_range.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdint>

namespace palimpsest {
namespace {

std::size_t whole_blocks(std::size_t n) {
  constexpr std::size_t block = AddressRange::kBlock;
  return (n + block - 1) / block * block;
}

// No MAP_NORESERVE: the system accounts for memory when it becomes writable, and may refuse then.
constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;

}  // namespace

std::size_t AddressRange::max_bytes() {
#ifdef __SANITIZE_THREAD__
  return std::size_t{64} << 30;  // its shadow memory covers few terabytes
#else
  const auto pages = static_cast<std::size_t>(std::max(1L, sysconf(_SC_PHYS_PAGES)));
  return 2 * pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
#endif
}

AddressRange::~AddressRange() {
  if (base() != nullptr) munmap(base(), bytes_);
}

bool AddressRange::reserve(std::size_t bytes, std::size_t min) noexcept {
  assert(base() == nullptr && min > 0 && min <= bytes && bytes <= SIZE_MAX - 2 * kBlock);
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)  // the other half is for everything else
    bytes = std::max(min, std::min(bytes, static_cast<std::size_t>(limit.rlim_cur) / 2));
  for (;; bytes = std::max(min, bytes / 2)) {
    const std::size_t whole = whole_blocks(bytes);
    void* const raw = mmap(nullptr, whole + kBlock, PROT_NONE, kFlags, -1, 0);
    if (raw != MAP_FAILED) {
      auto* const start = static_cast<std::byte*>(raw);
      const std::size_t address = reinterpret_cast<std::uintptr_t>(start), before = whole_blocks(address) - address;
      if (before > 0) munmap(start, before);
      if (before < kBlock) munmap(start + before + whole, kBlock - before);
      bytes_ = whole;
      base_.store(start + before, std::memory_order_release);
      return true;
    }
    if (bytes == min) return false;
  }
}

bool AddressRange::commit(std::size_t begin, std::size_t end) noexcept {
  begin = begin / kBlock * kBlock;
  end = whole_blocks(end);
  assert(begin < end && end <= bytes_);
  if (mprotect(base() + begin, end - begin, PROT_READ | PROT_WRITE) != 0) return false;
#ifdef MADV_HUGEPAGE
  madvise(base() + begin, end - begin, MADV_HUGEPAGE);  // a hint; failure is harmless
#endif
  return true;
}

void AddressRange::decommit(std::size_t begin, std::size_t end) noexcept {
  assert(begin % kBlock == 0 && end % kBlock == 0 && end <= bytes_);
  if (begin >= end) return;
  // With too many mappings in the process, free the memory and keep the mapping.
  if (mmap(base() + begin, end - begin, PROT_NONE, kFlags | MAP_FIXED, -1, 0) == MAP_FAILED)
    madvise(base() + begin, end - begin, MADV_DONTNEED);
}

}  // namespace palimpsest
