// Keys and values of a cache as f32 rows.
#pragma once

#include "palimpsest/cache/view.h"

namespace palimpsest {

// rows: [slots][head_dim] and [slots][value_dim], converted to f32. Rows of slots in freed pages are not written.
void read_keys(const LayerView& cache, const HeadPages& head, float* rows);
void read_values(const LayerView& cache, const HeadPages& head, float* rows);

}  // namespace palimpsest
