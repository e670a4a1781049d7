// Keys and values of a cache as f32 rows.
#pragma once

#include "palimpsest/cache/view.h"

namespace palimpsest {

// rows: [slots][head_dim] and [slots][value_dim], converted to f32. Rows of slots in freed pages are not written.
void read_keys(const LayerView& cache, const HeadPages& head, float* rows);
void read_values(const LayerView& cache, const HeadPages& head, float* rows);
// The 16 values from `slot` on, a multiple of 16; rows: [16][value_dim].
void read_value_tile(const LayerView& cache, const HeadPages& head, int slot, float* rows);

}  // namespace palimpsest
