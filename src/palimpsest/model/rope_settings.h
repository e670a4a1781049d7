// Rope scaling given by the user instead of a file's, with the meaning of llama.cpp's options. It becomes overrides of
// the file's metadata, so that all that reads positions (rotation, rotation again, `auto`, snapshots) agrees.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "palimpsest/core/gguf_override.h"

namespace palimpsest {

class ArchMetadata;

struct RopeSettings {
  // "none", "linear", "yarn", or "dynamic": NTK by the base (arXiv 2402.13753, section 2, and vLLM's dynamic NTK),
  // fixed for the longest text, so that cached keys stay valid. Empty: the file's.
  std::string scaling = {};
  // Absent: the file's. `scale` multiplies the trained context; `freq_scale` is its inverse.
  std::optional<double> scale = {}, freq_base = {}, freq_scale = {};
  // YaRN (arXiv 2309.00071). `attn_factor` multiplies its magnitude 1 + 0.1 ln(scale).
  std::optional<double> ext_factor = {}, attn_factor = {}, beta_slow = {}, beta_fast = {};
  std::optional<long long> original_context = {};

  bool given() const;
};

// The values of the file that `settings` replace. Throws Error for values out of range or that contradict each other.
std::vector<GgufOverride> rope_overrides(const RopeSettings& settings, const ArchMetadata& keys, bool rotary);

}  // namespace palimpsest
