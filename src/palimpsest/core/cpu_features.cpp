// Sources: Intel's manual, volume 2, CPUID leaf 7; volume 1, chapter 13 (XCR0); Linux,
// Documentation/arch/x86/xstate.rst, Documentation/arch/arm64/elf_hwcaps.rst.
#include "palimpsest/core/cpu_features.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace palimpsest {
namespace {

struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;

  Leaf(unsigned leaf, unsigned part) { __get_cpuid_count(leaf, part, &eax, &ebx, &ecx, &edx); }
};

bool ask_for_amx() {
  constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24, kInt8 = 1U << 25, kAll = kBf16 | kTile | kInt8;
  if ((Leaf(7, 0).edx & kAll) != kAll) return false;
  constexpr unsigned kOsXsave = 1U << 27, kTileState = 3U << 17;
  if ((Leaf(1, 0).ecx & kOsXsave) == 0) return false;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kTileState) != kTileState) return false;
  constexpr long kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}

}  // namespace

bool has_avx_vnni() {
  return (Leaf(7, 1).eax & 1U << 4) != 0;
}

bool has_amx() {
  static const bool has = ask_for_amx();
  return has;
}

}  // namespace palimpsest

#else

namespace palimpsest {

bool has_avx_vnni() {
  return false;
}

bool has_amx() {
  return false;
}

}  // namespace palimpsest

#endif

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace palimpsest {

bool has_neon_dot() {
#if defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long kDotProducts = 1UL << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kDotProducts) != 0;
#else
  return false;
#endif
}

bool has_neon_i8mm() {
#if defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long kMatrices = 1UL << 13;  // HWCAP2_I8MM
  return has_neon_dot() && (getauxval(AT_HWCAP2) & kMatrices) != 0;
#else
  return false;
#endif
}

}  // namespace palimpsest
