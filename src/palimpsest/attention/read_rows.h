// Keys and values of a cache as f32 rows, and dot products of such rows.
#pragma once

#include "palimpsest/cache/view.h"

namespace palimpsest {

// rows: [slots][head_dim] and [slots][value_dim], converted to f32. Rows of slots in freed pages are not written.
void read_keys(const LayerView& cache, const HeadPages& head, float* rows);
void read_values(const LayerView& cache, const HeadPages& head, float* rows);

// out[i]: dot product of rows[i] with `other`, and with itself. rows: [count][dim].
void row_products(const float* rows, int count, int dim, const float* other, float* out);
void row_squares(const float* rows, int count, int dim, float* out);

}  // namespace palimpsest
