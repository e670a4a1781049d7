// Two layers of two KV heads each, whose keys and values may differ in width.
#pragma once

#include "palimpsest/cache/geometry.h"

namespace palimpsest::testing {

struct Widths {
  int key, value;
};

inline HeadGeometry two_layers(Widths first, Widths second) {
  std::vector<LayerGeometry> layers;
  for (const Widths& widths : {first, second})
    layers.push_back({.kv_heads = 2, .query_heads = 2, .key_width = widths.key, .value_width = widths.value});
  return HeadGeometry(std::move(layers));
}

}  // namespace palimpsest::testing
