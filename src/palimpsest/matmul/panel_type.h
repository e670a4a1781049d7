// The panel layout of one GGUF type. A panel is a list of blocks; a block holds the same 32 (or 256) columns of 16
// rows:
//
//   scales      of all rows (ScaleKind)
//   codes       of each group of 32 columns: 2 bits, 128 bytes, 4 bits, 256 bytes, or 8 bits, 512 bytes
//   high bits   of each group: none, 64 bytes (3- and 5-bit codes) or 128 bytes (6-bit codes)
//
// Floats have no scales; their codes are the numbers, [column][row], of bf16 [column / 2][row][2]. Of integer codes:
//
// Byte 4 * row + j of vector s (64 bytes) belongs to column 4 * s + j of a group. 4 bits: the low half of the byte is
// that column's code, the high half is the code of column 16 + 4 * s + j. 2 bits: bits 2 * (s % 4) and the next of a
// byte of vector s / 4. 3- and 5-bit codes have one vector of high bits, bit s of a byte for column 4 * s + j; 6-bit
// codes have two, as those of 2 bits.
//
// A weight is scale * (code - 2^offset_bits) - min, or scale * (table[code] - 128).
//
// Internal.
#pragma once

#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "palimpsest/matmul/activations.h"

namespace palimpsest {

inline constexpr int kPanelRows = 16;
inline constexpr int kVectorBytes = 64;
inline constexpr int kCodeVectors = 8;  // per group

enum class ScaleKind {
  kNone,          // of floats
  kHalf,          // f16 d[16]
  kExponent,      // u8 e[16]: 2^(e - 128)
  kHalfAndSum,    // f16 d[16], f16 m[16]: min is -m
  kWithMin,       // f16 d[16], f16 min[16], u8 of groups [8][16], u8 mins of groups [8][16]
  kOfGroups,      // f16 d[16], i8 of groups [8][16]
  kSigned,        // f16 d[16], i8 of halves of groups [16][16]
  kHalvesWithMin  // f16 d[16], f16 min[16], u8 of halves of groups [16][16]: scale in the low 4 bits, min in the high
};

using CodeTable = std::array<std::uint8_t, 16>;  // of 4-bit codes: 128 + value

struct PanelType {
  ggml_type type;
  ScaleKind scales;
  int columns;      // per block
  int bits;         // per code; 16 and 32: floats
  int offset_bits;  // 0: no offset
  bool has_table = false;
  CodeTable table = {};  // with a table, offset_bits is 7

  constexpr int groups() const { return columns / kGroup; }
  // Scales and mins of a group.
  constexpr int parts() const { return scales == ScaleKind::kSigned || scales == ScaleKind::kHalvesWithMin ? 2 : 1; }
  constexpr int mins() const {
    if (scales == ScaleKind::kHalvesWithMin) return 2;
    return scales == ScaleKind::kWithMin || scales == ScaleKind::kHalfAndSum ? 1 : 0;
  }
  constexpr int low_bits() const { return bits >= 8 ? bits : bits < 4 ? 2 : 4; }  // without the high bits
  constexpr std::size_t scale_bytes() const {
    switch (scales) {
      case ScaleKind::kNone:
        return 0;
      case ScaleKind::kHalf:
        return 32;
      case ScaleKind::kExponent:
        return 16;
      case ScaleKind::kHalfAndSum:
        return 64;
      case ScaleKind::kWithMin:
        return 64 + 256;
      case ScaleKind::kOfGroups:
        return 32 + 128;
      case ScaleKind::kSigned:
        return 32 + 256;
      case ScaleKind::kHalvesWithMin:
        return 64 + 256;
    }
    return 0;
  }
  constexpr std::size_t code_bytes() const { return static_cast<std::size_t>(low_bits()) * kVectorBytes; }  // per group
  constexpr std::size_t high_bytes() const {
    return bits == 3 || bits == 5 ? kVectorBytes : bits == 6 ? 2 * kVectorBytes : 0;
  }
  constexpr std::size_t codes_at(int group) const {
    return scale_bytes() + static_cast<std::size_t>(group) * code_bytes();
  }
  constexpr std::size_t high_at(int group) const {
    return codes_at(groups()) + static_cast<std::size_t>(group) * high_bytes();
  }
  constexpr std::size_t block_bytes() const { return high_at(groups()); }
};

// Values of 4-bit codes, plus 128.
inline constexpr CodeTable kIq4NlTable = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr CodeTable kMxfp4Table = {128, 129, 130, 131, 132, 134, 136, 140,
                                          128, 127, 126, 125, 124, 122, 120, 116};

inline constexpr PanelType kQ4_0 = {GGML_TYPE_Q4_0, ScaleKind::kHalf, 32, 4, 3};
inline constexpr PanelType kQ4_1 = {GGML_TYPE_Q4_1, ScaleKind::kHalfAndSum, 32, 4, 0};
inline constexpr PanelType kQ5_0 = {GGML_TYPE_Q5_0, ScaleKind::kHalf, 32, 5, 4};
inline constexpr PanelType kQ5_1 = {GGML_TYPE_Q5_1, ScaleKind::kHalfAndSum, 32, 5, 0};
inline constexpr PanelType kQ8_0 = {GGML_TYPE_Q8_0, ScaleKind::kHalf, 32, 8, 7};
inline constexpr PanelType kIq4Nl = {GGML_TYPE_IQ4_NL, ScaleKind::kHalf, 32, 4, 7, true, kIq4NlTable};
inline constexpr PanelType kIq4Xs = {GGML_TYPE_IQ4_XS, ScaleKind::kOfGroups, 256, 4, 7, true, kIq4NlTable};
inline constexpr PanelType kMxfp4 = {GGML_TYPE_MXFP4, ScaleKind::kExponent, 32, 4, 7, true, kMxfp4Table};
inline constexpr PanelType kQ2K = {GGML_TYPE_Q2_K, ScaleKind::kHalvesWithMin, 256, 2, 0};
inline constexpr PanelType kQ3K = {GGML_TYPE_Q3_K, ScaleKind::kSigned, 256, 3, 2};
inline constexpr PanelType kQ4K = {GGML_TYPE_Q4_K, ScaleKind::kWithMin, 256, 4, 0};
inline constexpr PanelType kQ5K = {GGML_TYPE_Q5_K, ScaleKind::kWithMin, 256, 5, 0};
inline constexpr PanelType kQ6K = {GGML_TYPE_Q6_K, ScaleKind::kSigned, 256, 6, 5};

inline constexpr PanelType kF32 = {GGML_TYPE_F32, ScaleKind::kNone, 32, 32, 0};
inline constexpr PanelType kF16 = {GGML_TYPE_F16, ScaleKind::kNone, 32, 16, 0};
inline constexpr PanelType kBf16 = {GGML_TYPE_BF16, ScaleKind::kNone, 32, 16, 0};

std::span<const PanelType* const> panel_types();   // all
const PanelType* find_panel_type(ggml_type type);  // nullptr: no panels for it

// Writes one row's GGUF block into lane `row` of a panel's block, which must be zero there.
void pack_row(const PanelType& type, const std::byte* from, int row, std::byte* block);
// Dequantizes a row of a panel's block, [columns].
void unpack_row(const PanelType& type, const std::byte* block, int row, float* out);

}  // namespace palimpsest
