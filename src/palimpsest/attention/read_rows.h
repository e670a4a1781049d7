// Keys and values of a cache as f32 rows, for who compares them; and their products.
#pragma once

#include "palimpsest/cache/view.h"

namespace palimpsest {

// rows: [slots][head_dim] and [slots][value_dim], as the cache holds them; rows of slots in pages that were given back
// are left as they are.
void read_keys(const LayerView& cache, const HeadPages& head, float* rows);
void read_values(const LayerView& cache, const HeadPages& head, float* rows);

// out[i]: the product of rows[i] and `other`; of rows[i] and itself. rows: [count][dim].
void row_products(const float* rows, int count, int dim, const float* other, float* out);
void row_squares(const float* rows, int count, int dim, float* out);

}  // namespace palimpsest
