// The metadata keys of one architecture ("llama.block_count" and so on), each with its range.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/gguf_file.h"

namespace palimpsest {

class ArchMetadata {
 public:
  static constexpr std::int64_t kMax = 1 << 24;  // no width, count or size of a layer is larger

  ArchMetadata(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  const GgufFile& file() const { return file_; }
  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return file_.has(name(key)); }

  // All throw Error for a key that is mistyped or out of range.
  int required(std::string_view key, std::int64_t max = kMax) const;  // and for one that is missing
  int optional(std::string_view key, int fallback, std::int64_t max = kMax, std::int64_t min = 1) const;
  // One number for each layer, from an integer or an array of as many. Unless `differ` all must be equal, and at least
  // 1. Without the key `fallback`, of one for all or one for each; empty or 0: the key must be there.
  std::vector<int> of_layers(std::string_view key, int layers, bool differ, std::vector<int> fallback = {}) const;
  std::vector<int> of_layers(std::string_view key, int layers, bool differ, int fallback) const;
  double number(std::string_view key, double fallback, double min, double max) const;
  bool flag(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, const std::string& fallback) const;

  // Layers that see only `attention.sliding_window` tokens: all but each period's last, or as
  // attention.sliding_window_pattern says. INT32_MAX: a layer sees all. `window` 0: the key must be there for any.
  std::vector<std::int32_t> windows(int layers, int window, int period) const;

 private:
  const GgufFile& file_;
  std::string prefix_;
};

}  // namespace palimpsest
