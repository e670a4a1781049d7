// A model's heads: for each layer its KV heads, query heads, widths, types and attention window. A flat head index
// counts the KV heads of all layers in order:
//
//   layer         0        1        2
//   KV heads      3        0        2          a layer may have none
//   flat head     0 1 2             3 4        first_head: 0, 3, 3
//
// Only this file converts between flat heads and (layer, head); everything else takes flat heads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

struct LayerGeometry {
  int kv_heads = 0, query_heads = 0;  // query heads are a multiple of KV heads; 0 KV heads: nothing is cached
  int key_width = 0, value_width = 0;
  CacheType key_type = CacheType::kF16, value_type = CacheType::kF16;
  std::int32_t window = INT32_MAX;  // positions that a query sees, its own included; INT32_MAX: all
  bool chunked = false;             // a query sees only those since the last multiple of the window

  int group() const { return kv_heads == 0 ? 0 : query_heads / kv_heads; }  // query heads of a KV head

  bool operator==(const LayerGeometry&) const = default;
};

class HeadGeometry {
 public:
  HeadGeometry() = default;
  // Throws Error for counts and widths that are negative, inconsistent or too large.
  explicit HeadGeometry(std::vector<LayerGeometry> layers);
  // Equal layers, `group` query heads per KV head.
  static HeadGeometry uniform(int layers, int kv_heads, int key_width, int value_width,
                              CacheType type = CacheType::kF16, int group = 1);

  HeadGeometry with_types(CacheType key, CacheType value) const;
  HeadGeometry with_windows(std::span<const std::int32_t> windows, bool chunked = false) const;  // [layers]

  int layers() const { return static_cast<int>(layers_.size()); }
  const LayerGeometry& layer(int index) const { return layers_[static_cast<std::size_t>(index)]; }
  int heads() const { return first_head_.back(); }  // KV heads of all layers
  int first_head(int layer) const { return first_head_[static_cast<std::size_t>(layer)]; }
  // The end of the heads of layers before `last`, which may exceed the number of layers.
  int end_head(int last) const { return first_head(std::min(last, layers())); }
  int head(int layer, int kv_head) const { return first_head(layer) + kv_head; }
  int layer_of(int head) const { return layer_of_[static_cast<std::size_t>(head)]; }
  int kv_head_of(int head) const { return head - first_head(layer_of(head)); }  // its index in its layer
  const LayerGeometry& layer_geometry(int head) const { return layer(layer_of(head)); }

  // Max over the layers; 0 without layers.
  int max_kv_heads() const { return max_kv_heads_; }
  int max_group() const { return max_group_; }
  int max_key_width() const { return max_key_width_; }
  int max_value_width() const { return max_value_width_; }
  // All layers with KV heads have keys of one width, and values of one.
  bool one_width() const { return one_width_; }

  // All layers are equal but for their windows.
  bool is_uniform() const { return uniform_; }
  std::int32_t min_window() const;  // INT32_MAX: no layer has one
  int windowed_layers() const;

  bool operator==(const HeadGeometry& other) const { return layers_ == other.layers_; }

 private:
  std::vector<LayerGeometry> layers_;
  std::vector<int> first_head_ = {0};  // [layers + 1]
  std::vector<int> layer_of_;          // [heads]
  int max_kv_heads_ = 0, max_group_ = 0, max_key_width_ = 0, max_value_width_ = 0;
  bool uniform_ = true, one_width_ = true;
};

}  // namespace palimpsest
