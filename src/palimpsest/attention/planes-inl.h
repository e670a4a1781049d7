// How q3 and q2 (cache/formats/q3.h) pack their codes, for the kernels of nibbles-inl.h: Planes<kBits>.

#if defined(PALIMPSEST_ATTENTION_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_PLANES_INL_H_
#undef PALIMPSEST_ATTENTION_PLANES_INL_H_
#else
#define PALIMPSEST_ATTENTION_PLANES_INL_H_
#endif

#include <utility>

#include "palimpsest/attention/nibbles-inl.h"
#include "palimpsest/cache/formats/q3.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

// Bits `mask` of each byte after a shift of the words, to the right, or if negative to the left.
template <int kShift>
HWY_INLINE hn::Vec<NibbleBytes> bits_at(hn::Vec<Words> words, int mask) {
  const NibbleBytes du8;
  const auto all = hn::Set(du8, static_cast<std::uint8_t>(mask));
  if constexpr (kShift == 0)
    return hn::And(hn::BitCast(du8, words), all);
  else if constexpr (kShift > 0)
    return hn::And(hn::BitCast(du8, hn::ShiftRight<kShift>(words)), all);
  else
    return hn::And(hn::BitCast(du8, hn::ShiftLeft<-kShift>(words)), all);
}

template <int kOfBits>
struct Planes {
  using Format = planes::Format<kOfBits>;
  static constexpr bool kRotated = true;
  // A level is 2 * code - kZero, or one less. Codes of keys are doubled when they are unpacked, sums of values at their
  // end.
  static constexpr int kBits = kOfBits, kZero = Format::kTop, kLevels = 2;
  static constexpr bool kOffsets = true;
  static constexpr std::ptrdiff_t scale_place(int dim, int lane, int d) {
    return planes::scale_place<kOfBits>(dim, lane, d);
  }

  static constexpr int kStep = kOfBits == 3 ? 32 : 16;
  struct Keys {
    hn::Vec<Words> word[kOfBits == 3 ? 3 : 1];
  };
  static HWY_INLINE Keys keys(const std::byte* at) {
    const NibbleBytes du8;
    const Words du;
    const std::uint8_t* const from = reinterpret_cast<const std::uint8_t*>(at);
    Keys k;
    k.word[0] = hn::BitCast(du, hn::LoadU(du8, from));
    if constexpr (kOfBits == 3) {
      k.word[1] = hn::BitCast(du, hn::LoadU(du8, from + kTile * 4));
      k.word[2] = hn::BitCast(du, hn::LoadU(du8, from + 2 * kTile * 4));
    }
    return k;
  }
  template <int kQuad>
  static HWY_INLINE hn::Vec<NibbleBytes> quad(const Keys& k) {
    const auto low = bits_at<kQuad % 4 * 2 - 1>(k.word[kQuad / 4], 6);
    if constexpr (kOfBits == 3)
      return hn::Or(low, bits_at<kQuad - 3>(k.word[2], 8));
    else
      return low;
  }

  // As Nibbles::values(). Four dimensions are 16 bytes; each block of four lanes takes other bits of the same bytes.
  static HWY_INLINE std::pair<hn::Vec<NibbleBytes>, hn::Vec<NibbleBytes>> values(const std::byte* tile, int dim, int s,
                                                                                 int c, int part) {
    const NibbleBytes du8;
    const Words du;
    const std::uint8_t* const from = reinterpret_cast<const std::uint8_t*>(tile) + (s / 4 * dim + c) * kOfBits / 2;
    const auto block = hn::Add(hn::ShiftRight<2>(hn::Iota(du, 0)), hn::Set(du, static_cast<std::uint32_t>(part / 4)));
    const auto words = [&](int n) HWY_ATTR { return hn::BitCast(du, hn::LoadDup128(du8, from + 16 * n)); };
    const auto of_two = hn::Add(block, block);
    const auto a = bits_at<0>(hn::Shr(words(0), of_two), 3), b = bits_at<0>(hn::Shr(words(1), of_two), 3);
    if constexpr (kOfBits == 3) {
      const auto high = hn::Shr(words(2), block);
      return {hn::Or(a, bits_at<-2>(high, 4)), hn::Or(b, bits_at<2>(high, 4))};
    } else {
      return {a, b};
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
