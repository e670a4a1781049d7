// Reads the metadata keys of one architecture ("llama.block_count", ...) with range checks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/gguf_file.h"

namespace palimpsest {

class ArchMetadata {
 public:
  static constexpr std::int64_t kMax = 1 << 24;  // max of any width, count or size

  ArchMetadata(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  const GgufFile& file() const { return file_; }
  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return file_.has(name(key)); }

  // All throw Error for a key of the wrong type or out of range; required() also for a missing key.
  int required(std::string_view key, std::int64_t max = kMax) const;
  int optional(std::string_view key, int fallback, std::int64_t max = kMax, std::int64_t min = 1) const;
  // One number per layer, from an integer or an array [layers]. Unless `differ`, all must be equal and at least 1. If
  // the key is missing: `fallback` (one number for all layers or one per layer); empty or 0: throws.
  std::vector<int> of_layers(std::string_view key, int layers, bool differ, std::vector<int> fallback = {}) const;
  std::vector<int> of_layers(std::string_view key, int layers, bool differ, int fallback) const;
  double number(std::string_view key, double fallback, double min, double max) const;
  bool flag(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, const std::string& fallback) const;

  // The attention window of each layer; INT32_MAX: all tokens. Windowed layers are all but the last of each period, or
  // as attention.sliding_window_pattern says; their window is attention.sliding_window, by default `window` (0: no
  // layer has a window).
  std::vector<std::int32_t> windows(int layers, int window, int period) const;

 private:
  // Whether a list has one value per layer; the layers of multi-token prediction may have some, too.
  bool is_of_layers(std::size_t size, int layers) const;

  const GgufFile& file_;
  std::string prefix_;
};

}  // namespace palimpsest
