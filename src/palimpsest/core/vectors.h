// Sums over rows of f32, with the widest vectors of the CPU. They add in another order than a plain loop: the results
// are equal to rounding, and the same for a row whatever the other rows.
#pragma once

#include <span>

#include "palimpsest/core/types.h"

namespace palimpsest {

float dot(std::span<const float> a, std::span<const float> b);
float norm(std::span<const float> row);
void add_scaled(float factor, std::span<const float> row, std::span<float> sum);  // sum += factor * row

// sum += factor[i] * rows[i] for all rows in order; rows whose factor is 0 are not read.
void add_scaled_rows(const Rows& rows, std::span<const float> factor, std::span<float> sum);

// One result per row.
void dot_rows(const Rows& rows, std::span<const float> x, std::span<float> out);   // rows[i] . x
void norm_rows(const Rows& rows, std::span<float> out);                            // ||rows[i]||
void quadratic_forms(const Rows& matrix, const Rows& rows, std::span<float> out);  // rows[i]' matrix rows[i]

}  // namespace palimpsest
