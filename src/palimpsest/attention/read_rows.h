// Keys and values of a cache as f32 rows, for policies that compare them.
#pragma once

#include "palimpsest/cache/view.h"

namespace palimpsest {

// rows: [slots][head_dim] and [slots][value_dim], as the cache holds them; rows of slots in pages that were given back
// are left as they are.
void read_keys(const LayerView& cache, const HeadPages& head, float* rows);
void read_values(const LayerView& cache, const HeadPages& head, float* rows);

}  // namespace palimpsest
