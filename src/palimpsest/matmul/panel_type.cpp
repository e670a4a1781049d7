// Repacks GGUF blocks into panels. Block layouts are ggml's (ggml-common.h).
#include "palimpsest/matmul/panel_type.h"

#include <cmath>
#include <cstring>

namespace palimpsest {
namespace {

std::uint8_t at(const std::byte* bytes, int i) {
  return static_cast<std::uint8_t>(bytes[i]);
}

struct Codes {
  std::uint8_t code[256];
};

// The codes of one row's block, in column order.
Codes codes_of(const PanelType& type, const std::byte* from) {
  Codes out{};
  switch (type.type) {
    case GGML_TYPE_Q8_0:  // f16 d, i8 [32]
      for (int k = 0; k < 32; ++k) out.code[k] = static_cast<std::uint8_t>(at(from, 2 + k) ^ 0x80);
      break;
    case GGML_TYPE_Q4_0:
    case GGML_TYPE_IQ4_NL:   // f16 d, u8 [16]: columns 0-15 low, 16-31 high
    case GGML_TYPE_MXFP4: {  // u8 e, likewise
      const std::byte* nibbles = from + (type.type == GGML_TYPE_MXFP4 ? 1 : 2);
      for (int k = 0; k < 16; ++k) {
        out.code[k] = at(nibbles, k) & 15;
        out.code[k + 16] = at(nibbles, k) >> 4;
      }
      break;
    }
    case GGML_TYPE_Q4_1:    // f16 d, f16 m, u8 [16], likewise
    case GGML_TYPE_Q5_0:    // f16 d, u8 fifth bits [4], u8 [16]
    case GGML_TYPE_Q5_1: {  // f16 d, f16 m, u8 fifth bits [4], u8 [16]
      const std::byte* const bits = from + (type.type == GGML_TYPE_Q5_0 ? 2 : 4);
      const std::byte* const nibbles = bits + (type.bits == 5 ? 4 : 0);
      for (int k = 0; k < 32; ++k) {
        const int low = k < 16 ? at(nibbles, k) & 15 : at(nibbles, k - 16) >> 4;
        const int fifth = type.bits == 5 ? at(bits, k / 8) >> k % 8 & 1 : 0;
        out.code[k] = static_cast<std::uint8_t>(low | fifth << 4);
      }
      break;
    }
    case GGML_TYPE_IQ4_XS:  // f16 d, u16 high bits of scales, u8 low bits [4], u8 [128]: 16 of each group
      for (int k = 0; k < 256; ++k) {
        const int byte = at(from, 8 + k / 32 * 16 + k % 16);
        out.code[k] = static_cast<std::uint8_t>(k % 32 < 16 ? byte & 15 : byte >> 4);
      }
      break;
    case GGML_TYPE_Q4_K:    // f16 d, f16 min, u8 scales[12], u8 [128]
    case GGML_TYPE_Q5_K: {  // ... scales[12], u8 high[32], u8 [128]
      const bool five = type.type == GGML_TYPE_Q5_K;
      const std::byte *high = from + 16, *nibbles = from + (five ? 48 : 16);
      for (int k = 0; k < 256; ++k) {
        const int group = k / 32, l = k % 32, byte = at(nibbles, group / 2 * 32 + l);
        const int low = group % 2 == 0 ? byte & 15 : byte >> 4;
        const int fifth = five ? at(high, l) >> group & 1 : 0;
        out.code[k] = static_cast<std::uint8_t>(low | fifth << 4);
      }
      break;
    }
    case GGML_TYPE_Q2_K:    // u8 scales[16], u8 [64], f16 d, f16 min
    case GGML_TYPE_Q3_K: {  // u8 third bits [32], u8 [64], u8 scales[12], f16 d
      const bool three = type.type == GGML_TYPE_Q3_K;
      const std::byte* const two_bits = from + (three ? 32 : 16);
      for (int k = 0; k < 256; ++k) {
        const int half = k / 128, quarter = k % 128 / 32, l = k % 32;
        const int low = at(two_bits, half * 32 + l) >> (2 * quarter) & 3;
        const int third = three ? at(from, l) >> (4 * half + quarter) & 1 : 0;
        out.code[k] = static_cast<std::uint8_t>(low | third << 2);
      }
      break;
    }
    default:  // Q6_K: u8 low[128], u8 high[64], i8 scales[16], f16 d
      for (int k = 0; k < 256; ++k) {
        const int half = k / 128, quarter = k % 128 / 32, l = k % 32;
        const int low = at(from, half * 64 + quarter % 2 * 32 + l);
        const int high = at(from, 128 + half * 32 + l) >> (2 * quarter) & 3;
        out.code[k] = static_cast<std::uint8_t>((quarter < 2 ? low & 15 : low >> 4) | high << 4);
      }
  }
  return out;
}

// The 6-bit scale and min of a group of Q4_K and Q5_K.
void scale_and_min(const std::byte* packed, int group, std::uint8_t& scale, std::uint8_t& min) {
  if (group < 4) {
    scale = at(packed, group) & 63;
    min = at(packed, group + 4) & 63;
  } else {
    scale = static_cast<std::uint8_t>((at(packed, group + 4) & 15) | at(packed, group - 4) >> 6 << 4);
    min = static_cast<std::uint8_t>(at(packed, group + 4) >> 4 | at(packed, group) >> 6 << 4);
  }
}

// The scale of half a group of Q3_K, 6 bits with an offset of 32: the low 4 bits of all, then the high 2.
int scale_of_half(const std::byte* packed, int half) {
  const int low = at(packed, half % 8) >> (half < 8 ? 0 : 4) & 15,
            high = at(packed, 8 + half % 4) >> (2 * (half / 4)) & 3;
  return (low | high << 4) - 32;
}

float half_at(const std::byte* block, std::size_t index) {
  ggml_fp16_t half;
  std::memcpy(&half, block + 2 * index, 2);
  return ggml_fp16_to_fp32(half);
}

// The offset of a float in its block.
std::size_t float_at(const PanelType& type, int column, int row) {
  const int pair = type.type == GGML_TYPE_BF16 ? 2 : 1;
  const int number = (column / pair * kPanelRows + row) * pair + column % pair;
  return static_cast<std::size_t>(number * type.bits / 8);
}

}  // namespace

std::span<const PanelType* const> panel_types() {
  static constexpr const PanelType* kAll[] = {&kQ4_0, &kQ4_1, &kQ5_0, &kQ5_1, &kQ8_0, &kIq4Nl, &kIq4Xs, &kMxfp4,
                                              &kQ2K,  &kQ3K,  &kQ4K,  &kQ5K,  &kQ6K,  &kF32,   &kF16,   &kBf16};
  return kAll;
}

const PanelType* find_panel_type(ggml_type type) {
  for (const PanelType* one : panel_types())
    if (one->type == type) return one;
  return nullptr;
}

void pack_row(const PanelType& type, const std::byte* from, int row, std::byte* block) {
  const auto lane = static_cast<std::size_t>(row);
  switch (type.scales) {
    case ScaleKind::kNone:
      for (int k = 0; k < type.columns; ++k)
        std::memcpy(block + float_at(type, k, row), from + static_cast<std::size_t>(k * type.bits / 8),
                    static_cast<std::size_t>(type.bits / 8));
      return;
    case ScaleKind::kHalf:
      std::memcpy(block + 2 * lane, from, 2);
      break;
    case ScaleKind::kExponent:
      block[lane] = from[0];
      break;
    case ScaleKind::kHalfAndSum:
      std::memcpy(block + 2 * lane, from, 2);
      std::memcpy(block + 32 + 2 * lane, from + 2, 2);
      break;
    case ScaleKind::kOfGroups:
      std::memcpy(block + 2 * lane, from, 2);
      for (int g = 0; g < 8; ++g) {
        const int low = at(from, 4 + g / 2) >> (4 * (g % 2)) & 15, high = at(from, 2 + g / 4) >> (2 * (g % 4)) & 3;
        block[32 + static_cast<std::size_t>(g) * 16 + lane] = static_cast<std::byte>((low | high << 4) - 32);
      }
      break;
    case ScaleKind::kWithMin:
      std::memcpy(block + 2 * lane, from, 2);
      std::memcpy(block + 32 + 2 * lane, from + 2, 2);
      for (int g = 0; g < 8; ++g) {
        std::uint8_t scale = 0, min = 0;
        scale_and_min(from + 4, g, scale, min);
        block[64 + static_cast<std::size_t>(g) * 16 + lane] = static_cast<std::byte>(scale);
        block[192 + static_cast<std::size_t>(g) * 16 + lane] = static_cast<std::byte>(min);
      }
      break;
    case ScaleKind::kSigned: {
      const bool six = type.type == GGML_TYPE_Q6_K;
      std::memcpy(block + 2 * lane, from + (six ? 208 : 108), 2);
      for (int h = 0; h < 16; ++h)
        block[32 + static_cast<std::size_t>(h) * 16 + lane] =
            six ? from[192 + h] : static_cast<std::byte>(scale_of_half(from + 96, h));
      break;
    }
    case ScaleKind::kHalvesWithMin:
      std::memcpy(block + 2 * lane, from + 80, 2);
      std::memcpy(block + 32 + 2 * lane, from + 82, 2);
      for (std::size_t h = 0; h < 16; ++h) block[64 + h * 16 + lane] = from[h];
      break;
  }
  // Four consecutive columns of a row are one word of a vector.
  const Codes codes = codes_of(type, from);
  const auto word_of = [&](int group, int s) {
    std::uint32_t word;
    std::memcpy(&word, codes.code + group * kGroup + 4 * s, 4);
    return word;
  };
  const auto add = [&](std::byte* vectors, int s, std::uint32_t word) {
    std::byte* const at = vectors + s * kVectorBytes + 4 * row;
    std::uint32_t old;
    std::memcpy(&old, at, 4);
    old |= word;
    std::memcpy(at, &old, 4);
  };
  constexpr std::uint32_t kLow = 0x0F0F0F0F, kTwo = 0x03030303, kOne = 0x01010101;
  for (int g = 0; g < type.groups(); ++g) {
    std::byte *const vectors = block + type.codes_at(g), *const high = block + type.high_at(g);
    for (int s = 0; s < kCodeVectors; ++s) {
      const std::uint32_t word = word_of(g, s), above = word >> 4 & kTwo;
      if (type.low_bits() == 8)
        add(vectors, s, word);
      else if (type.low_bits() == 4)
        add(vectors, s % 4, (word & kLow) << (s < 4 ? 0 : 4));
      else
        add(vectors, s / 4, (word & kTwo) << (2 * (s % 4)));
      if (type.bits == 3) add(high, 0, (word >> 2 & kOne) << s);
      if (type.bits == 5) add(high, 0, above << s);
      if (type.bits == 6) add(high, s / 4, above << (2 * (s % 4)));
    }
  }
}

void unpack_row(const PanelType& type, const std::byte* block, int row, float* out) {
  const auto lane = static_cast<std::size_t>(row);
  if (type.scales == ScaleKind::kNone) {
    const auto to_float = ggml_get_type_traits(type.type)->to_float;
    for (int k = 0; k < type.columns; ++k) {
      const std::byte* const from = block + float_at(type, k, row);
      if (to_float == nullptr)
        std::memcpy(out + k, from, sizeof(float));
      else
        to_float(from, out + k, 1);
    }
    return;
  }
  for (int k = 0; k < type.columns; ++k) {
    const int group = k / kGroup, s = k % kGroup / 4, j = k % 4;
    const int byte = 4 * row + j;
    const std::byte* const vectors = block + type.codes_at(group);
    const std::byte* const high = block + type.high_at(group);
    int code = 0;
    if (type.low_bits() == 8) code = at(vectors, s * kVectorBytes + byte);
    if (type.low_bits() == 4) code = at(vectors, s % 4 * kVectorBytes + byte) >> (s < 4 ? 0 : 4) & 15;
    if (type.low_bits() == 2) code = at(vectors, s / 4 * kVectorBytes + byte) >> (2 * (s % 4)) & 3;
    if (type.bits == 3) code |= (at(high, byte) >> s & 1) << 2;
    if (type.bits == 5) code |= (at(high, byte) >> s & 1) << 4;
    if (type.bits == 6) code |= (at(high, s / 4 * kVectorBytes + byte) >> (2 * (s % 4)) & 3) << 4;
    if (type.has_table) code = type.table[code];
    const auto value = static_cast<float>(code - (type.offset_bits > 0 ? 1 << type.offset_bits : 0));
    switch (type.scales) {
      case ScaleKind::kNone:
        break;  // above
      case ScaleKind::kHalf:
        out[k] = value * half_at(block, lane);
        break;
      case ScaleKind::kHalfAndSum:
        out[k] = value * half_at(block, lane) + half_at(block + 32, lane);
        break;
      case ScaleKind::kOfGroups: {
        const int of_group = static_cast<std::int8_t>(at(block, 32 + group * 16 + row));
        out[k] = half_at(block, lane) * static_cast<float>(of_group) * value;
        break;
      }
      case ScaleKind::kExponent: {
        const int e = at(block, row);
        out[k] = e < 2 ? 0 : std::ldexp(value, e - 128);  // ggml has denormal scales here
        break;
      }
      case ScaleKind::kWithMin: {
        const float scale = half_at(block, lane) * static_cast<float>(at(block, 64 + group * 16 + row));
        out[k] = scale * value - half_at(block + 32, lane) * static_cast<float>(at(block, 192 + group * 16 + row));
        break;
      }
      case ScaleKind::kSigned: {
        const int of_half = static_cast<std::int8_t>(at(block, 32 + (k / 16) * 16 + row));
        out[k] = half_at(block, lane) * static_cast<float>(of_half) * value;
        break;
      }
      case ScaleKind::kHalvesWithMin: {
        const int of_half = at(block, 64 + (k / 16) * 16 + row);
        out[k] = half_at(block, lane) * static_cast<float>(of_half & 15) * value -
                 half_at(block + 32, lane) * static_cast<float>(of_half >> 4);
        break;
      }
    }
  }
}

}  // namespace palimpsest
