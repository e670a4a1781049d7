#include "palimpsest/core/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace palimpsest::testing {
namespace {

TEST(Memory, RisesAndFallsWithWhatIsTouched) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's own memory for every byte touched hides the program's";
#endif
  constexpr std::size_t kBytes = std::size_t{64} << 20, kSlack = std::size_t{8} << 20;
  const std::size_t before = resident_bytes();
  ASSERT_GT(before, 0u);
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_LT(resident_bytes(), before + kSlack);  // not yet touched
  std::memset(memory, 1, kBytes);
  EXPECT_GE(resident_bytes() + kSlack, before + kBytes);
  munmap(memory, kBytes);
  EXPECT_LT(resident_bytes(), before + kSlack);
  EXPECT_GE(resident_bytes_peak() + kSlack, before + kBytes);
}

}  // namespace
}  // namespace palimpsest::testing
