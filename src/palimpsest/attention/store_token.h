// Writes one token's key and value into a slot, with the bytes that a step writes.
#pragma once

#include "palimpsest/cache/view.h"

namespace palimpsest {

// `key`: as stored, [head_dim]; `value`: [value_dim]. Both fit the cache's types. No rotated halves.
void store_token(const LayerView& cache, const HeadPages& head, int slot, const float* key, const float* value);

}  // namespace palimpsest
